package locktable_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

// tight are limits that every history exceeds.
var tight = locktable.Limits{MaxKeys: 10, MaxWaiters: 1, MaxTotalWaiters: 1, MaxRecords: 1, MaxEntries: 1}

// TestLimitsAreTheLeadersOwn says that admission comes before the log: a table with tight limits applies all that a leader
// with roomy ones has decided, from the log and from a snapshot, and keeps its limits when it leads itself.
func TestLimitsAreTheLeadersOwn(t *testing.T) {
	const held = 100
	seed := seedOf(t)
	for s := seed; s < seed+20; s++ {
		log, end := logOf(s)
		follower := locktable.New(tight, 1, sinkFunc(quiet))
		for _, record := range log {
			commit(t, follower, record)
		}
		if got := follower.Snapshot(nil); !bytes.Equal(got, end) {
			t.Fatalf("seed %d: got\n%x\nwant that of the leader\n%x", s, got, end)
		}
	}
	leader := newAlone(roomy)
	applies, restored := newTight(), newTight()
	commit(t, applies.Table, locktable.AppendRecord(nil, locktable.New(roomy, 1, leader).Begin(0, locktable.Proposer{Stint: 1}, locktable.StartTerms{})))
	for i := range held {
		leader.Acquire(0, lease(session(0, 1, 1), keySet(fmt.Sprintf("k%02d", i)), 0))
		for r := leader.Table.Propose(0); r != nil; r = leader.Table.Propose(0) {
			commit(t, applies.Table, locktable.AppendRecord(nil, r))
			leader.Table.Commit(0, r)
		}
	}
	want := leader.Snapshot(nil)
	if err := restored.Restore(0, want); err != nil {
		t.Fatal(err)
	}
	for name, table := range map[string]*tightTable{"applied": applies, "restored": restored} {
		if got := table.Snapshot(nil); !bytes.Equal(got, want) {
			t.Fatalf("%s with a limit of 10 keys: %d keys, want %d, and the leader's state", name, table.Counts().Keys, held)
		}
		t.Run(name, func(t *testing.T) { leadsBeyondItsLimit(t, table, held) })
		if err := table.Check(); err != nil {
			t.Error(err)
		}
	}
}

// tightTable is a table with tight limits and the last that it has said.
type tightTable struct {
	*locktable.Table
	last locktable.Kind
}

func newTight() *tightTable {
	t := &tightTable{}
	t.Table = locktable.New(tight, 1, sinkFunc(func(r *locktable.Reply) { t.last = r.Kind }))
	return t
}

func (t *tightTable) settled() locktable.Kind {
	for r := t.Propose(0); r != nil; r = t.Propose(0) {
		t.Commit(0, r)
	}
	return t.last
}

func (t *tightTable) asks(key string) locktable.Kind {
	t.last = 0
	t.Acquire(0, lease(session(0, 1, 1), keySet(key), time.Minute))
	return t.settled()
}

// leadsBeyondItsLimit has a table with a limit of 10 keys lead with more of them held: new keys are busy until less than
// 75 % of the limit are active, and those that are active go on.
func leadsBeyondItsLimit(t *testing.T, table *tightTable, held int) {
	table.Commit(0, table.Begin(0, locktable.Proposer{Stint: 2}, locktable.StartTerms{}))
	if got := table.asks("k00"); got != 0 {
		t.Errorf("an active key: %s, want it to wait", kinds[got])
	}
	for i := held - 1; i >= 7; i-- {
		if got := table.asks("new"); got != locktable.Busy {
			t.Fatalf("%d keys: a new one is %q, want busy", i+1, kinds[got])
		}
		table.Release(0, &locktable.Release{Session: session(0, 1, 1), Token: locktable.Token(i + 1), Keys: keySet(fmt.Sprintf("k%02d", i))})
		if got := table.settled(); got != locktable.Released {
			t.Fatalf("release of key %d: %s", i, kinds[got])
		}
	}
	if got := table.asks("new"); got != locktable.Granted {
		t.Errorf("7 keys of 10: a new one is %q, want it granted", kinds[got])
	}
}
