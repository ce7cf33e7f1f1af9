package raftglue

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

func entry(i uint64, n int) *raft.Log {
	return &raft.Log{Index: i, Term: 1 + i/100, Data: bytes.Repeat([]byte{byte(i)}, n)}
}

// TestMemLogAgainstAMap drives the ring and a map through what Raft does to a log, and compares all they say.
func TestMemLogAgainstAMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	m, want := newMemLog(), map[uint64]*raft.Log{}
	var first, last uint64
	for step := range 3000 {
		switch k := rnd.IntN(10); {
		case k < 6: // append
			var ls []*raft.Log
			if first == 0 {
				last = rnd.Uint64N(1e6)
				first = last + 1
			}
			for range 1 + rnd.IntN(200) {
				last++
				l := entry(last, rnd.IntN(50))
				ls, want[last] = append(ls, l), l
			}
			if err := m.StoreLogs(ls); err != nil {
				t.Fatal(err)
			}
		case k < 7 && first != 0: // a conflict: the end goes
			from := first + rnd.Uint64N(last-first+1)
			m.DeleteRange(from, last)
			for i := from; i <= last; i++ {
				delete(want, i)
			}
			if last = from - 1; last < first {
				first, last = 0, 0
			}
		case k < 9 && first != 0: // compaction: the beginning goes
			to := first + rnd.Uint64N(last-first+1)
			m.DeleteRange(first, to)
			for i := first; i <= to; i++ {
				delete(want, i)
			}
			if first = to + 1; first > last {
				first, last = 0, 0
			}
		case k == 9 && first != 0: // a snapshot from beyond the log
			last += 2 + rnd.Uint64N(1000)
			l := entry(last, 5)
			m.StoreLog(l)
			clear(want)
			first, want[last] = last, l
		}
		compareLog(t, step, m, want, first, last)
	}
}

func compareLog(t *testing.T, step int, m *memLog, want map[uint64]*raft.Log, first, last uint64) {
	t.Helper()
	f, _ := m.FirstIndex()
	l, _ := m.LastIndex()
	if f != first || l != last {
		t.Fatalf("step %d: got %d..%d, want %d..%d", step, f, l, first, last)
	}
	bytes := 0
	for i, w := range want {
		var got raft.Log
		if err := m.GetLog(i, &got); err != nil || got.Index != i || string(got.Data) != string(w.Data) {
			t.Fatalf("step %d: entry %d: %v", step, i, err)
		}
		bytes += entryBytes(w)
	}
	if n, b := m.size(); n != len(want) || b != bytes {
		t.Fatalf("step %d: size %d entries, %d bytes; want %d, %d", step, n, b, len(want), bytes)
	}
	var none raft.Log
	for _, i := range []uint64{0, first - 1, last + 1} {
		if _, there := want[i]; !there && !errors.Is(m.GetLog(i, &none), raft.ErrLogNotFound) {
			t.Fatalf("step %d: entry %d is there", step, i)
		}
	}
}

func TestMemLogShrinks(t *testing.T) {
	m := newMemLog()
	for i := range uint64(100000) {
		m.StoreLog(entry(i+1, 1))
	}
	m.DeleteRange(1, 99990)
	for range 20 {
		m.DeleteRange(1, 1)
	}
	first, _ := m.FirstIndex()
	for first, i := first, uint64(0); i < 20; i++ {
		m.DeleteRange(first, first)
		m.StoreLog(entry(100001+i, 1))
		first++
	}
	if len(m.ring) > 4096 {
		t.Errorf("the ring has %d places for some 10 entries", len(m.ring))
	}
}

func TestMemStable(t *testing.T) {
	m := newMemStable()
	if v, err := m.Get([]byte("x")); err != nil || len(v) != 0 {
		t.Errorf("nothing set: %q, %v", v, err)
	}
	if v, err := m.GetUint64([]byte("x")); err != nil || v != 0 {
		t.Errorf("nothing set: %d, %v", v, err)
	}
	value := []byte("abc")
	m.Set([]byte("x"), value)
	value[0] = 'z'
	if v, _ := m.Get([]byte("x")); string(v) != "abc" {
		t.Errorf("got %q: the store keeps what the caller changes", v)
	}
	m.SetUint64([]byte("n"), 1<<63+5)
	if v, _ := m.GetUint64([]byte("n")); v != 1<<63+5 {
		t.Errorf("got %d", v)
	}
}

func TestMemSnapshotsShowOnlyWhatIsFinished(t *testing.T) {
	var m memSnapshots
	cfg := raft.Configuration{Servers: []raft.Server{{ID: "a", Address: "b"}}}
	create := func(index, term uint64, data string) raft.SnapshotSink {
		s, err := m.Create(1, index, term, cfg, 3, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(s, data)
		return s
	}
	newest := func() string {
		list, err := m.List()
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			return ""
		}
		meta, r, err := m.Open(list[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r)
		if meta.Size != int64(len(b)) || meta.ConfigurationIndex != 3 || len(meta.Configuration.Servers) != 1 {
			t.Errorf("meta %+v of %d bytes", meta, len(b))
		}
		return fmt.Sprintf("%d/%d %s", meta.Term, meta.Index, b)
	}
	s := create(10, 1, "one")
	if got := newest(); got != "" {
		t.Errorf("a snapshot being written is seen: %q", got)
	}
	s.Close()
	if got := newest(); got != "1/10 one" {
		t.Errorf("got %q", got)
	}
	c := create(20, 1, "cancelled")
	c.Cancel()
	c.Close()
	if got := newest(); got != "1/10 one" {
		t.Errorf("after a cancel: %q", got)
	}
	slow, quick := create(30, 1, "slow"), create(40, 1, "quick")
	list, _ := m.List()
	_, reading, _ := m.Open(list[0].ID)
	quick.Close()
	slow.Close()
	if got := newest(); got != "1/40 quick" {
		t.Errorf("an older one that ended later took the newest's place: %q", got)
	}
	if b, _ := io.ReadAll(reading); string(b) != "one" {
		t.Errorf("what was being read changed to %q", b)
	}
	if _, _, err := m.Open(list[0].ID); !errors.Is(err, errNoSnapshot) {
		t.Errorf("the old one opens: %v", err)
	}
	if _, err := slow.Write([]byte("x")); err == nil {
		t.Error("a finished snapshot takes more")
	}
}

func BenchmarkMemLog(b *testing.B) {
	m := newMemLog()
	b.ReportAllocs()
	var l raft.Log
	for i := uint64(1); b.Loop(); i++ {
		m.StoreLog(&raft.Log{Index: i})
		m.GetLog(i, &l)
		if i%8192 == 0 {
			m.DeleteRange(1, i-4096)
		}
	}
}

// spoil overwrites the first byte of an entry's data in the log, and so many before it.
func spoil(dir, data string, before int) error {
	return each(filepath.Join(dir, walName, "*.wal"), func(f string) error {
		b, err := os.ReadFile(f)
		at := bytes.Index(b, []byte(data))
		if at < before {
			return errors.Join(err, fmt.Errorf("%s has no %q", f, data))
		}
		w, err := os.OpenFile(f, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		_, err = w.WriteAt(bytes.Repeat([]byte{0xff}, before+1), int64(at-before))
		return errors.Join(err, w.Close())
	})
}

// each does something with every file of that pattern; one at least is there.
func each(pattern string, do func(string) error) error {
	files, err := filepath.Glob(pattern)
	if len(files) == 0 {
		err = errors.Join(err, fmt.Errorf("no %s", pattern))
	}
	for _, f := range files {
		err = errors.Join(err, do(f))
	}
	return err
}

func overwrite(file string, at int64) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte("what nobody has written"), at)
	return errors.Join(err, f.Close())
}
