package raftglue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// A voter misses that another member was made a voter, and the leader that did it dies before the two meet again. Neither
// stands in the other's configuration as a voter, but the cluster of three has lost one member only.
func TestAVoterThatMissedTheLastChange(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		w.mustCommit(time.Second)
		leader := w.leader().slotNow()
		misses, comes := (leader+1)%3, (leader+2)%3
		c, id := w.procs[leader].consensus.Load(), w.procs[comes].raftID()
		seat, _ := c.seat(id)
		knows := func() bool {
			s, ok := w.procs[misses].consensus.Load().seat(id)
			return ok && s.Suffrage == raft.Voter
		}
		for try := 0; ; try++ { // the gate may be quicker, and make it a voter while all hear of it
			commit(t, c.raft.DemoteVoter(id, 0, time.Second))
			w.isolate(misses)
			if !knows() {
				break
			}
			w.net.healAll()
			w.within(3*time.Second, "all ready", w.allReady)
			if try == 20 {
				t.Fatal("the gate was quicker 20 times")
			}
		}
		commit(t, c.raft.AddVoter(id, seat.Address, 0, time.Second))
		w.acked = append(w.acked, "in the new configuration")
		if err := w.procs[leader].propose("in the new configuration", time.Second); err != nil {
			t.Fatalf("proposing: %v", err)
		}
		if knows() {
			t.Fatal("it has not missed the change")
		}
		w.kill(leader)
		w.net.lose(hostOf(leader))
		wait(30 * testElection)
		if l := w.leader(); l != nil {
			t.Fatalf("slot %d leads alone", l.slotNow())
		}
		w.net.healAll()
		w.mustCommit(2 * time.Second)
		w.start(leader)
		w.within(10*time.Second, "all ready again", w.allReady)
		w.check()
	})
}

// Of five, one was cut off when it and another were made voters: it takes neither for one. Two more are lost, which five
// bear, and only that other has all that was said to be done.
func TestAVoterThatMissedItsOwnChange(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 5)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		w.mustCommit(time.Second)
		leader := w.leader().slotNow()
		slot := func(i int) int { return (leader + i) % 5 }
		misses, comes, short, lost := slot(1), slot(2), slot(3), slot(4)
		c := w.procs[leader].consensus.Load()
		seats := map[int]raft.Server{}
		for _, i := range []int{misses, comes} {
			seats[i], _ = c.seat(w.procs[i].raftID())
			commit(t, c.raft.DemoteVoter(seats[i].ID, 0, time.Second))
		}
		knows := func(i int) bool {
			s, _ := w.procs[misses].consensus.Load().seat(seats[i].ID)
			return s.Suffrage == raft.Voter
		}
		w.within(100*time.Millisecond, "it knows that it is no voter", func() bool { return !knows(misses) && !knows(comes) })
		w.isolate(misses)
		commit(t, c.raft.AddVoter(seats[comes].ID, seats[comes].Address, 0, time.Second))
		commit(t, c.raft.AddVoter(seats[misses].ID, seats[misses].Address, 0, time.Second))
		if knows(misses) || knows(comes) {
			t.Fatal("it has not missed the changes")
		}
		w.isolate(short)
		w.acked = append(w.acked, "said to be done")
		if err := w.procs[leader].propose("said to be done", time.Second); err != nil {
			t.Fatalf("proposing: %v", err)
		}
		for _, i := range []int{leader, lost} {
			w.kill(i)
			w.net.lose(hostOf(i))
		}
		w.net.healAll()
		w.mustCommit(5 * time.Second)
		w.check()
	})
}

func commit(t *testing.T, f raft.IndexFuture) {
	t.Helper()
	if err := f.Error(); err != nil {
		t.Fatalf("change of members: %v", err)
	}
}

// busyMachine applies its next record when it is let.
type busyMachine struct {
	*register
	applying, let chan struct{}
}

func (m *busyMachine) Apply(records [][]byte) {
	select {
	case m.applying <- struct{}{}:
		<-m.let
	default:
	}
	m.register.Apply(records)
}

// Raft leaves what it has committed and not applied at its end without an answer. Whoever waits for one must not hold
// Stop up.
func TestStopWithUnansweredFutures(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		busy := make([]*busyMachine, 3)
		w.edit = func(slot int, c *Config) {
			busy[slot] = &busyMachine{c.Machine.(*register), make(chan struct{}), make(chan struct{})}
			c.Machine = busy[slot]
		}
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		l := w.leader()
		m := busy[l.slotNow()]
		held := make(chan struct{})
		go func() { <-m.applying; close(held) }() // ends at once
		synctest.Wait()
		go func() { _ = l.propose("held", time.Second) }() // ends after its second
		<-held
		// More than a coin can spare: the FSM goroutine ends at the first toss between its queue and its end.
		const questions = 40
		answered := make(chan *reply, questions)
		for i := range questions {
			l.Propose([]byte{byte(i)}, func() {})
			go func() { answered <- l.answer(&question{Op: opIsMember, Inc: l.inc}) }() // ends with the node
			synctest.Wait()
		}
		stopped := make(chan error, 1)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		go func() { stopped <- l.Stop(ctx) }() // ends within ctx
		synctest.Wait()
		close(m.let)
		if err := <-stopped; err != nil {
			t.Fatalf("stopping: %v", err)
		}
		for range questions {
			<-answered
		}
	})
}
