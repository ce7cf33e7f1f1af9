package main

import (
	"fmt"
	"syscall"
	"time"

	"github.com/ticketing-go/ticketing/bench/history"
)

// churnEvery is the time from one change of leader to the next.
const churnEvery = 2 * time.Second

// churn changes the leader every two seconds by pausing it, while a dead holder has a key. Its lease must end, by the
// lease clock, which loses at most the time without a leader and a second at every change.
func churn(d *drill) error {
	d.begin(usual())
	stop, done := make(chan struct{}), make(chan struct{})
	// Ends when stop is closed, and with that before the chapter does.
	go func() { defer close(done); d.deadHolders(stop) }()
	err := d.changes()
	close(stop)
	<-done
	d.result.notes = append(d.result.notes, d.heldLong()...)
	return err
}

func (d *drill) changes() error {
	for i := range d.count {
		began := time.Now()
		leader, err := d.leader()
		if err != nil {
			return fmt.Errorf("change %d: %w", i+1, err)
		}
		from := d.rec.Now()
		if err := leader.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		at, _, ok := d.crew.FirstGrant(churnEvery * 3 / 4)
		leader.Signal(syscall.SIGCONT)
		d.rec.Unstable(from, d.rec.Now()+500*time.Millisecond)
		if ok {
			d.result.outages = append(d.result.outages, at-from)
		}
		d.result.done++
		if err := d.over(); err != nil {
			return err
		}
		time.Sleep(churnEvery - min(churnEvery, time.Since(began)))
	}
	return nil
}

// deadHolders acquires a key for five seconds, forgets it, and tries to get it again, over and over. What became of it
// is read from the history (heldLong).
func (d *drill) deadHolders(stop <-chan struct{}) {
	key := fmt.Sprintf("c%d/dead", d.chapter)
	for {
		select {
		case <-stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
		s, err := d.dial(d.fleet.Nodes[d.route.Leader()])
		if err != nil {
			continue
		}
		if c, err := s.Acquire(key, 0, 5*time.Second, false); err == nil {
			select {
			case <-c.Done:
			case <-time.After(500 * time.Millisecond):
			}
		}
		s.Close()
	}
}

// heldLong says how long dead holders kept the key, and calls it a failure where it was for ever.
func (d *drill) heldLong() []string {
	const lease, tooLong = 5 * time.Second, 60 * time.Second
	key := fmt.Sprintf("c%d/dead", d.chapter)
	var grants []time.Duration
	h := d.rec.History()
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Key == key && op.Outcome == history.Granted {
			grants = append(grants, op.Return)
		}
	}
	if len(grants) == 0 {
		d.result.failures = append(d.result.failures, "the key of the dead holder was never granted")
		return nil
	}
	var longest time.Duration
	for i, g := range grants {
		until := d.rec.Now()
		if i+1 < len(grants) {
			until = grants[i+1]
		}
		longest = max(longest, until-g)
	}
	if longest > tooLong {
		d.result.failures = append(d.result.failures, fmt.Sprintf("a dead holder kept its key for %v", longest))
	}
	return []string{fmt.Sprintf("dead holder's key, lease %v: granted %d times, longest between two grants %v",
		lease, len(grants), longest.Round(10*time.Millisecond))}
}
