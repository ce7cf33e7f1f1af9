package locktable

import (
	"testing"
	"time"
)

type deaf struct{}

func (deaf) Reply(*Reply) {}

// TestIdleKeysAreSeen says that the invariant that a server shows can be seen broken: a free key whose first waiter needs
// nothing else, which no command leads to.
func TestIdleKeysAreSeen(t *testing.T) {
	table := New(Limits{MaxKeys: 10, MaxWaiters: 10, MaxTotalWaiters: 10, MaxRecords: 8, MaxEntries: 256}, 1, deaf{})
	table.Commit(0, table.Begin(0, Proposer{Stint: 1}, StartTerms{}))
	for slot := range Session(2) {
		table.Acquire(0, &Acquire{Session: slot<<32 | 1, ID: 1, Keys: KeySet("\x01k"), Wait: time.Hour, Lease: time.Hour})
		for r := table.Propose(0); r != nil; r = table.Propose(0) {
			table.Commit(0, r)
		}
	}
	if n := table.IdleKeys(); n != 0 || table.waiting != 1 {
		t.Fatalf("%d idle keys and %d waiters, want 0 and 1", n, table.waiting)
	}
	name := []byte("\x01k")
	table.index.find(name, table.index.hash(name)).holder = nil
	if n := table.IdleKeys(); n != 1 {
		t.Errorf("%d idle keys, want 1", n)
	}
	if table.Check() == nil {
		t.Error("the invariants hold, though a key is idle")
	}
}
