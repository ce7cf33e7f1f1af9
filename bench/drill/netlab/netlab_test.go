package netlab

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// reaches says whether a connection attempt from one node to another is answered: nobody listens, so a refusal is the
// answer of a link that works.
func reaches(l *Lab, from, to int) bool {
	line := append(l.Prefix(from), "timeout", "1", "bash", "-c", "exec 3<>/dev/tcp/"+l.Host(to)+"/9")
	out, _ := exec.Command(line[0], line[1:]...).CombinedOutput()
	return strings.Contains(string(out), "refused")
}

func newLab(t *testing.T, link Link) *Lab {
	l, err := New(3, link)
	if errors.Is(err, ErrUnable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestCutsAndHeals(t *testing.T) {
	for _, link := range []Link{{}, {Delay: 5 * time.Millisecond}} {
		t.Run(link.Delay.String(), func(t *testing.T) {
			l := newLab(t, link)
			expect := func(what string, from, to int, want bool) {
				t.Helper()
				if got := reaches(l, from, to); got != want {
					t.Errorf("%s: node %d reaches node %d: got %v, want %v", what, from, to, got, want)
				}
			}
			for end := time.Now().Add(5 * time.Second); !reaches(l, 0, 1) && time.Now().Before(end); {
			}
			expect("whole", 0, 1, true)
			if err := l.Cut([][2]int{{0, 1}}); err != nil {
				t.Fatal(err)
			}
			expect("cut", 0, 1, false)
			expect("cut", 0, 2, true)
			expect("cut", 2, 1, true)
			if err := l.Heal(); err != nil {
				t.Fatal(err)
			}
			expect("healed", 0, 1, true)
		})
	}
}

// The relay delays and loses what it should.
func TestRelayLoses(t *testing.T) {
	l := newLab(t, Link{Loss: 1})
	if reaches(l, 0, 1) {
		t.Error("a packet came through though all are lost")
	}
}
