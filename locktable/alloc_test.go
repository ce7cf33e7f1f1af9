package locktable_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

var large = locktable.Limits{MaxKeys: 2_000_000, MaxWaiters: 16384, MaxTotalWaiters: 200_000, MaxRecords: 8, MaxEntries: 256}

// alone is a table in single mode, with the token of its last grant.
type alone struct {
	real
	last locktable.Token
}

func newAlone(limits locktable.Limits) *alone {
	a := &alone{}
	a.real = real{Table: locktable.New(limits, 1, a), direct: true}
	a.Commit(0, a.Begin(0, locktable.Proposer{Stint: 1}, locktable.StartTerms{}))
	return a
}

func (a *alone) Reply(r *locktable.Reply) {
	if r.Kind == locktable.Granted {
		a.last = r.Token
	}
}

func (a *alone) commitAll() {
	for r := a.Table.Propose(0); r != nil; r = a.Table.Propose(0) {
		a.Table.Commit(0, r)
	}
}

func (a *alone) take(acq *locktable.Acquire) {
	a.Acquire(0, acq)
	a.commitAll()
}

func (a *alone) give(rel *locktable.Release) {
	rel.Token = a.last
	a.Release(0, rel)
	a.commitAll()
}

func lease(s locktable.Session, keys locktable.KeySet, wait time.Duration) *locktable.Acquire {
	return &locktable.Acquire{Session: s, ID: 1, Keys: keys, Lease: 1000 * time.Hour, Wait: wait}
}

// TestSteadyLoadAllocatesNothing is for what a server does all day.
func TestSteadyLoadAllocatesNothing(t *testing.T) {
	s, other := session(0, 0, 1), session(0, 1, 1)
	key := keySet("orders")
	tests := []struct {
		name string
		make func() func()
	}{
		{"acquire and release of a free key", func() func() {
			a, acq, rel := newAlone(large), lease(s, key, 0), &locktable.Release{Session: s, Keys: key}
			return func() { a.take(acq); a.give(rel) }
		}},
		{"an attempt on a held key", func() func() {
			a, acq := newAlone(large), lease(other, key, 0)
			a.take(lease(s, key, 0))
			return func() { a.take(acq) }
		}},
		{"a release of nothing", func() func() {
			a, rel := newAlone(large), &locktable.Release{Session: s, Keys: key}
			a.take(lease(s, key, 0))
			a.give(&locktable.Release{Session: s, Keys: key})
			return func() { a.give(rel) }
		}},
		{"waiting, and a hand-over", func() func() {
			a, acq, rel := newAlone(large), lease(other, key, time.Minute), &locktable.Release{Session: s, Keys: key}
			a.take(lease(s, key, 0))
			return func() { a.take(acq); a.give(rel) }
		}},
	}
	for _, test := range tests {
		f := test.make()
		for range 5000 {
			f()
		}
		if got := testing.AllocsPerRun(1000, f); got > 0 {
			t.Errorf("%s allocates %v times, want 0", test.name, got)
		}
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestWaiterIsSmall wants at most 150 bytes a waiter besides its key, and no goroutine for any.
func TestWaiterIsSmall(t *testing.T) {
	for _, waiters := range []int{50_000, 100_000} {
		a := newAlone(large)
		const keys, sessions = 50, 1000
		names := make([]locktable.KeySet, keys)
		for i := range names {
			names[i] = keySet(fmt.Sprintf("key-%03d", i))
			a.take(lease(session(0, sessions, 1), names[i], 0))
		}
		for i := range sessions { // sessions are the connections' cost
			a.take(lease(session(0, i, 1), names[0], 0))
		}
		before, goroutines := heap(), runtime.NumGoroutine()
		for i := range waiters {
			a.take(lease(session(0, i%sessions, 1), names[i%keys], time.Hour))
		}
		got := float64(heap()-before) / float64(waiters)
		if a.Counts().Waiters != waiters {
			t.Fatalf("got %d waiters, want %d", a.Counts().Waiters, waiters)
		}
		if got > 150 {
			t.Errorf("%d waiters cost %.1f bytes each, want at most 150", waiters, got)
		}
		if n := runtime.NumGoroutine(); n != goroutines {
			t.Errorf("%d goroutines with %d waiters, %d before", n, waiters, goroutines)
		}
		t.Logf("%d waiters: %.1f bytes each", waiters, got)
		runtime.KeepAlive(a)
	}
}

// TestKeysLeaveNothing acquires and releases a million keys: the heap is back within a MiB.
func TestKeysLeaveNothing(t *testing.T) {
	keys := 1_000_000
	if testing.Short() {
		keys = 100_000
	}
	for _, sets := range []bool{false, true} {
		a := newAlone(large)
		s := session(0, 0, 1)
		a.take(lease(s, keySet("x"), 0))
		a.give(&locktable.Release{Session: s, Keys: keySet("x")})
		before := heap()
		fill := func(f func(set locktable.KeySet, token locktable.Token)) {
			var buf []byte
			token := locktable.Token(2)
			for i := 0; i < keys; token++ {
				buf = fmt.Appendf(buf[:0], "\x08%08d", i)
				if i++; sets {
					buf = fmt.Appendf(buf, "\x08%08d", i)
					i++
				}
				f(buf, token)
			}
		}
		fill(func(set locktable.KeySet, _ locktable.Token) { a.take(lease(s, set, 0)) })
		if c := a.Counts(); c.Held != keys || c.Keys != keys {
			t.Fatalf("got %d keys held, %d active, want %d", c.Held, c.Keys, keys)
		}
		full := heap() - before
		fill(func(set locktable.KeySet, token locktable.Token) {
			a.Release(0, &locktable.Release{Session: s, Token: token, Keys: set})
			a.commitAll()
		})
		if c := a.Counts(); c.Held != 0 || c.Keys != 0 {
			t.Fatalf("got %d keys held, %d active, want none", c.Held, c.Keys)
		}
		left := int64(heap()) - int64(before)
		if left > 1<<20 {
			t.Errorf("%d keys (sets of two: %v) leave %d bytes, want at most %d", keys, sets, left, 1<<20)
		}
		t.Logf("%d keys (sets of two: %v): %.1f bytes a key, %d left", keys, sets, float64(full)/float64(keys), left)
		runtime.KeepAlive(a)
	}
}

// TestWaitersLeaveNothing does so with 100,000 waiters that time out together.
func TestWaitersLeaveNothing(t *testing.T) {
	a := newAlone(locktable.Limits{MaxKeys: 1000, MaxWaiters: 200_000, MaxTotalWaiters: 200_000, MaxRecords: 8, MaxEntries: 256})
	s, key := session(0, 0, 1), keySet("orders")
	a.take(lease(s, key, 0))
	before := heap()
	for range 100_000 {
		a.take(lease(s, key, time.Second))
	}
	a.Tick(time.Second)
	a.commitAll()
	if c := a.Counts(); c.Waiters != 0 || c.Timeouts != 100_000 {
		t.Fatalf("got %d waiters and %d time-outs, want 0 and 100000", c.Waiters, c.Timeouts)
	}
	if left := int64(heap()) - int64(before); left > 1<<20 {
		t.Errorf("100000 waiters leave %d bytes, want at most %d", left, 1<<20)
	}
	runtime.KeepAlive(a)
}
