package raftglue

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// A leader that was stopped does not know that it is deposed. The first that it hears from its successor is a heartbeat,
// which hashicorp/raft takes up beside its main loop (hashicorp/raft#695): what a client asks just then must not be
// written as an entry of the successor's term.
func TestADeposedLeaderWritesNothingInItsSuccessorsTerm(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		// Slot 0 has a lease so long that it finds nothing out by itself, as if it had been stopped meanwhile.
		w.edit = func(slot int, c *Config) {
			if slot == 0 {
				c.Election = 100 * testElection
			}
		}
		w.startAll()
		defer w.stopAll()
		if _, err := w.procs[1].form(1, nil); err != nil {
			t.Fatalf("init: %v", err)
		}
		w.within(3*time.Second, "all ready", w.allReady)
		if err := w.transfer(0); err != nil {
			t.Fatalf("transfer: %v", err)
		}
		w.within(time.Second, "slot 0 leads", func() bool { return w.procs[0].reg.now().Leading })
		w.mustCommit(time.Second)
		old := w.procs[0]
		w.isolate(0)
		w.within(5*time.Second, "another leads", func() bool {
			return w.procs[1].reg.now().Leading || w.procs[2].reg.now().Leading
		})
		wait(6 * time.Second) // longer than any call under way
		for slot := range w.procs {
			w.net.lose(hostOf(slot))
		}
		c := old.consensus.Load()
		term := c.raft.CurrentTerm()
		w.net.healAll()
		w.within(5*time.Second, "it knows of the new term", func() bool { return c.raft.CurrentTerm() > term })
		_ = old.propose("too late", time.Millisecond)
		w.within(5*time.Second, "it leads no longer", func() bool { return !old.reg.now().Leading })
		w.mustCommit(2 * time.Second)
		wait(time.Second)
		w.check()
	})
}

// transfer hands leadership to a slot.
func (w *world) transfer(slot int) error {
	to := w.procs[slot].self()
	l := w.leader()
	if l == w.procs[slot] {
		return nil
	}
	return l.await(l.consensus.Load().raft.LeadershipTransferToServer(to.id(), to.address()))
}

// What a follower's log has beyond the entries that its leader compares may be a dead leader's, though the leader knows
// by then that entries at those places are committed.
func TestAFollowerCommitsOnlyWhatWasCompared(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		w.mustCommit(time.Second)
		old := w.leader()
		last := old.consensus.Load().raft.LastIndex()
		w.isolate(old.slotNow())
		_ = old.propose("never committed", time.Millisecond)
		w.within(time.Second, "it leads no longer", func() bool { return !old.reg.now().Leading })
		w.mustCommit(2 * time.Second)
		w.mustCommit(2 * time.Second)
		c := w.leader().consensus.Load()
		var prev raft.Log
		if err := c.stores.log.GetLog(last, &prev); err != nil {
			t.Fatal(err)
		}
		// As after the leader's replication has looked where its log ends and before its own first entry is there, and the
		// scheduler, or the pause after a failure, has let the commit index go on meanwhile.
		to, self := old.self(), w.leader().self()
		w.net.healAll()
		var resp raft.AppendEntriesResponse
		err := c.trans.AppendEntries(to.id(), to.address(), &raft.AppendEntriesRequest{
			RPCHeader: raft.RPCHeader{
				ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(self.id()), Addr: []byte(self.address()),
			},
			Term: c.raft.CurrentTerm(), PrevLogEntry: prev.Index, PrevLogTerm: prev.Term,
			LeaderCommitIndex: c.raft.CommitIndex(),
		}, &resp)
		if err != nil || !resp.Success {
			t.Fatalf("%v, %+v", err, resp)
		}
		w.within(2*time.Second, "caught up", func() bool { return len(old.reg.all()) >= len(w.acked) })
		w.check()
	})
}

// Replication that outlives its leadership reads a log that is no longer its own, and must send none of it: another term
// may have come to stand behind an entry of the old one.
func TestADeposedLeaderReplicatesNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		old := w.leader()
		next := w.procs[(old.slotNow()+1)%3]
		c := old.consensus.Load()
		term := c.raft.CurrentTerm()
		call := func() error {
			to, self := next.self(), old.self()
			return c.trans.AppendEntries(to.id(), to.address(), &raft.AppendEntriesRequest{
				RPCHeader: raft.RPCHeader{
					ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(self.id()), Addr: []byte(self.address()),
				},
				Term: term,
			}, &raft.AppendEntriesResponse{})
		}
		if err := call(); err != nil {
			t.Fatalf("a leader's: %v", err)
		}
		if err := w.transfer(next.slotNow()); err != nil {
			t.Fatalf("transfer: %v", err)
		}
		w.within(time.Second, "the other leads", func() bool { return next.reg.now().Leading && c.raft.CurrentTerm() > term })
		if err := call(); !errors.Is(err, errDeposed) {
			t.Errorf("a deposed leader's: %v", err)
		}
	})
}

func TestHeartbeatsLeaveTheTermAlone(t *testing.T) {
	store := newMemStable()
	store.SetUint64([]byte(keyCurrentTerm), 5)
	terms, err := newTerms(store)
	if err != nil {
		t.Fatal(err)
	}
	beat := func(term uint64, take func(raft.RPC)) *raft.AppendEntriesResponse {
		ch := make(chan raft.RPCResponse, 1)
		terms.heartbeat(raft.RPC{Command: &raft.AppendEntriesRequest{Term: term}, RespChan: ch}, take)
		select {
		case r := <-ch:
			return r.Response.(*raft.AppendEntriesResponse)
		default:
			return nil
		}
	}
	for _, other := range []uint64{4, 6} {
		r := beat(other, func(raft.RPC) { t.Errorf("Raft takes up a heartbeat of term %d in term 5", other) })
		if r == nil || r.Success || r.Term != 5 {
			t.Errorf("term %d: answered %+v", other, r)
		}
	}
	terms.mu.Lock()
	if r := beat(5, func(raft.RPC) { t.Error("Raft takes up a heartbeat while its term rises") }); r == nil || r.Success {
		t.Errorf("while the term rises: answered %+v", r)
	}
	terms.mu.Unlock()
	taken := false
	risen := make(chan error, 1)
	beat(5, func(raft.RPC) {
		taken = true
		go func() { risen <- terms.SetUint64([]byte(keyCurrentTerm), 6) }() // ends with beat
		if terms.mu.TryLock() {
			t.Error("the term can rise while a heartbeat is taken up")
		}
		if err := terms.SetUint64([]byte(keyCurrentTerm), 5); err != nil {
			t.Error(err)
		}
	})
	if !taken {
		t.Error("Raft does not take up a heartbeat of its term")
	}
	if err := <-risen; err != nil || beat(6, func(raft.RPC) {}) != nil {
		t.Errorf("after it the term does not rise: %v", err)
	}
}

// countedStore is a memStable that counts what is written.
type countedStore struct {
	*memStable
	writes int
}

func (c *countedStore) Set(key, value []byte) error {
	c.writes++
	return c.memStable.Set(key, value)
}

func (c *countedStore) SetUint64(key []byte, value uint64) error {
	c.writes++
	return c.memStable.SetUint64(key, value)
}

// vote has a node vote as hashicorp/raft does.
func vote(t *testing.T, s raft.StableStore, term uint64, candidate string) {
	t.Helper()
	if err := errors.Join(s.SetUint64([]byte(keyLastVoteTerm), term), s.Set([]byte(keyLastVoteCand), []byte(candidate))); err != nil {
		t.Fatal(err)
	}
}

func TestAVoteIsOneWrite(t *testing.T) {
	store := &countedStore{memStable: newMemStable()}
	start := func(term uint64, candidate string) *terms {
		t.Helper()
		s, err := newTerms(store)
		if err != nil {
			t.Fatal(err)
		}
		gotTerm, err1 := s.GetUint64([]byte(keyLastVoteTerm))
		got, err2 := s.Get([]byte(keyLastVoteCand))
		if err1 != nil || err2 != nil || gotTerm != term || string(got) != candidate {
			t.Fatalf("vote in term %d for %q, want %d for %q; %v, %v", gotTerm, got, term, candidate, err1, err2)
		}
		return s
	}
	start(0, "")
	vote(t, store, 3, "a") // as it was written without us
	s := start(3, "a")
	store.writes = 0
	vote(t, s, 5, "b")
	if store.writes != 1 {
		t.Errorf("a vote takes %d writes", store.writes)
	}
	s = start(5, "b")
	// A node that falls before it has voted has not voted in that term, for nobody.
	if err := s.SetUint64([]byte(keyLastVoteTerm), 6); err != nil {
		t.Fatal(err)
	}
	start(5, "b")
	store.memStable.Set([]byte(keyVote), []byte("short"))
	if s, err := newTerms(store); err != nil {
		t.Error(err)
	} else if _, err := s.GetUint64([]byte(keyLastVoteTerm)); !errors.Is(err, errVote) {
		t.Errorf("a malformed vote: %v", err)
	} else if _, err := s.Get([]byte(keyLastVoteCand)); !errors.Is(err, errVote) {
		t.Errorf("a malformed vote: %v", err)
	}
}
