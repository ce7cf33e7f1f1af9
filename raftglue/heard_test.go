package raftglue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

func TestHeardMajority(t *testing.T) {
	virtual(t, func(t *testing.T) {
		voters, self := []raft.ServerID{"b", "c", "d", "e"}, true
		h := newHeard(func() ([]raft.ServerID, bool) { return voters, self })
		lease := 100 * time.Millisecond
		if h.within(time.Hour) {
			t.Error("heard before anybody was asked")
		}
		sent := time.Now()
		wait(300 * time.Millisecond) // the process was stopped meanwhile, and the replies are read now
		h.acknowledged("b", 2, sent)
		h.acknowledged("c", 2, sent)
		if h.within(lease) {
			t.Error("what was sent 300 ms ago counts as heard within 100")
		}
		if !h.within(301 * time.Millisecond) {
			t.Error("it was heard within 301 ms")
		}
		h.acknowledged("b", 2, time.Now())
		if h.within(lease) {
			t.Error("one of five and the leader are no majority")
		}
		h.acknowledged("learner", 2, time.Now())
		if h.within(lease) {
			t.Error("a learner counts")
		}
		h.acknowledged("e", 2, time.Now())
		if !h.within(lease) {
			t.Error("two of five and the leader are a majority")
		}
		h.acknowledged("c", 1, time.Now())
		wait(lease)
		if !h.within(lease) {
			t.Error("the lease itself is within it")
		}
		wait(time.Millisecond)
		if h.within(lease) {
			t.Error("a majority counts beyond the lease; an earlier term's acknowledgement may have been taken")
		}
		h.acknowledged("b", 3, time.Now())
		if h.within(time.Hour) {
			t.Error("a new term counts what the earlier had")
		}
		// Of three voters, one of whom is not this node's: a leader without a vote needs two others.
		voters, self = []raft.ServerID{"b", "c", "d"}, false
		h.acknowledged("b", 4, time.Now())
		if h.within(lease) {
			t.Error("one of three counts as two")
		}
		h.acknowledged("c", 4, time.Now())
		if !h.within(lease) {
			t.Error("two of three are a majority")
		}
	})
}

func TestComebackWaitsForMembersOnly(t *testing.T) {
	virtual(t, func(t *testing.T) {
		in := true
		b := newComeback(func(raft.ServerID) bool { return in })
		waits := func() chan struct{} {
			done := make(chan struct{})
			go func() { // ends when let go
				b.wait("a")
				close(done)
			}()
			synctest.Wait()
			return done
		}
		over := func(done chan struct{}) bool {
			select {
			case <-done:
				return true
			case <-time.After(time.Second):
				return false
			}
		}
		d := waits()
		if over(d) {
			t.Error("it did not wait")
		}
		b.reached("b")
		if over(d) {
			t.Error("another's heartbeat let it go")
		}
		b.reached("a")
		if !over(d) {
			t.Error("a heartbeat did not let it go")
		}
		d = waits()
		b.release(false)
		if !over(d) {
			t.Error("a release did not let it go")
		}
		in = false
		if !over(waits()) {
			t.Error("it waits for one who is no member")
		}
		in = true
		b.release(true)
		if !over(waits()) {
			t.Error("it waits after the end")
		}
	})
}
