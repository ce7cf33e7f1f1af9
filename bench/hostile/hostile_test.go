package main

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/ticketing-go/ticketing/bench/daemon"
)

// Every drill, with counts that suit a test. Malformed frames are as many, and cut at as many places, as in full.
func TestDrills(t *testing.T) {
	ctx := context.Background()
	bin, err := daemon.Build(ctx, daemon.Product, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range drills() {
		t.Run(d.name, func(t *testing.T) {
			told, err := d.run(ctx, bin, short)
			t.Log(told)
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// The model of the protocol's table, against verdicts written down by hand.
func TestVerdict(t *testing.T) {
	long := string(make([]byte, 400))
	cases := []struct {
		in, want string
		slow, ok bool
	}{
		{"X", `E"bad_op"`, false, true},
		{"\n\nx", `E"bad_op"`, false, true},
		{"A", `E"bad_request"`, true, true},
		{"A\n\n\n\n\n\n\n\n\n\n", `E"bad_request"`, true, true},
		{"A\n\n\n\n\n\n\n\n\n\n\n", `E"bad_key"`, false, true},
		{"A\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00 \n", `E"bad_lease"`, false, true},
		{"A\x00\xfb\x00\x00\x00\x00\x00\x00\x00\x00k\n", `E"bad_lease"`, false, true},
		{"A\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00" + long[:181], `E"bad_request"`, true, true},
		{"A\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00" + long[:182], `E"line_too_long"`, false, true},
		{"A\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00" + long[:181] + "\n", `E"bad_key"`, false, true},
		{"R\xfe\x00\x00\x00\x00\x00\x00\x00k\nR\xfe\x00\x00\x00\x00\x00\x00\x00\xff\n", `N"k" E"bad_key"`, false, true},
		{"A\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00" + unique + "\nA\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00" + unique + "\n?", `A"` + unique + `" T"` + unique + `" E"bad_op"`, false, true},
		{"R\xfe\x00\x00\x00\x00\x00\x00\x00k\n", "", false, false},
		{"R\x00\x00\x00\x00\x00\x00\x00\x01k\nX", "", false, false},
	}
	for _, c := range cases {
		got, ok := verdict([]byte(c.in))
		if ok != c.ok || got.want != c.want || got.slow != c.slow {
			t.Errorf("verdict(%q) = %s, slow %v, %v; want %s, slow %v, %v", c.in, got.want, got.slow, ok, c.want, c.slow, c.ok)
		}
	}
}

// The corpus is as large as the issue asks for, and of every kind.
func TestCorpus(t *testing.T) {
	talks := corpus(rand.New(rand.NewPCG(corpusSeed, 1)), short.mutations)
	if len(talks) < 500 {
		t.Errorf("%d malformed conversations, want 500", len(talks))
	}
	kinds := make(map[string]int)
	for _, c := range talks {
		kinds[c.want[len(c.want)-8:]]++
	}
	if len(kinds) != 5 {
		t.Errorf("kinds of errors: %v, want five", kinds)
	}
	fast, slow := 0, 0
	for _, c := range talks {
		if c.slow {
			slow += len(c.in)
		} else {
			fast += len(c.in)
		}
	}
	t.Logf("trials: %d fast, %d slow", fast, slow)
	t.Logf("%d conversations, by the end of their reason: %v", len(talks), kinds)
}
