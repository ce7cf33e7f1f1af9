package main

import (
	"fmt"
	"syscall"
	"time"

	"github.com/ticketing-go/ticketing/bench/drill/fleet"
	"github.com/ticketing-go/ticketing/bench/drill/session"
	"github.com/ticketing-go/ticketing/bench/history"
)

// amnesia is the trial in which naive code gives a key to two: while a minority lags, a grant is committed by the
// rest; then the leader is paused, and all others that know of the grant are killed and started again, empty. They and
// the laggards are a majority of processes, and yet must not grant.
func amnesia(d *drill) error {
	return d.rounds(func(leader *fleet.Node) error {
		others := d.others(leader)
		lagging, knowing := others[:len(others)/2], others[len(others)/2:]
		from := d.rec.Now()
		signal := func(nodes []*fleet.Node, s syscall.Signal) error {
			for _, n := range nodes {
				if err := n.Signal(s); err != nil {
					return err
				}
			}
			return nil
		}
		if err := signal(lagging, syscall.SIGSTOP); err != nil {
			return err
		}
		// A paused process finds in its sockets what was sent to it, and lags only behind what came after the leader had
		// given its connections up.
		time.Sleep(max(1500*time.Millisecond, 8*d.election))
		victim, grant, err := d.victim(leader)
		if err != nil { // a leader that stands on few loses its lead easily on a busy machine
			d.result.notes = append(d.result.notes, fmt.Sprintf("trial %d is void: %v", d.result.done+1, err))
			if err := signal(lagging, syscall.SIGCONT); err != nil {
				return err
			}
			if _, _, err := d.served(from); err != nil {
				return err
			}
			d.rec.Unstable(from, d.rec.Now()+time.Second)
			_, err := d.ready()
			return err
		}
		leader.Signal(syscall.SIGSTOP)
		for _, n := range knowing {
			n.Kill()
			if err := n.Start(); err != nil {
				return err
			}
		}
		if err := signal(lagging, syscall.SIGCONT); err != nil {
			return err
		}
		granted := d.granted(others, victim, 2*time.Second)
		leader.Signal(syscall.SIGCONT)
		healed := d.rec.Now()
		if granted != nil {
			d.rec.Unstable(from, history.Never)
			d.result.violations++
			return fmt.Errorf("%v held the key, and then %v got it", &grant, granted)
		}
		at, place, ok := d.crew.FirstGrant(serveWithin)
		d.rec.Unstable(from, d.rec.Now()+time.Second)
		if !ok {
			return fmt.Errorf("%w: no grant within %v of the end of the pause", errStall, serveWithin)
		}
		d.result.heals = append(d.result.heals, at-healed)
		if err := d.giveBack(place, grant); err != nil {
			return err
		}
		took, err := d.ready()
		d.result.rejoins = append(d.result.rejoins, took)
		return err
	})
}

// dial opens a session for single steps, one at a time.
func (d *drill) dial(n *fleet.Node) (*session.Session, error) {
	return d.dialer(0).Dial(n.Addr, n.Number())
}

// victim acquires a key for a minute.
func (d *drill) victim(leader *fleet.Node) (key string, grant history.Op, err error) {
	s, err := d.dial(leader)
	if err != nil {
		return "", grant, err
	}
	defer s.Close()
	key = fmt.Sprintf("c%d/victim/%d", d.chapter, d.result.done)
	c, err := s.Acquire(key, time.Second, time.Minute, false)
	if err != nil {
		return "", grant, err
	}
	<-c.Done
	if c.Op.Outcome != history.Granted {
		return "", grant, fmt.Errorf("no grant while a minority is paused: %v", &c.Op)
	}
	return key, c.Op, nil
}

// granted tries for a while to get a key that is held, at some nodes. It returns the grant, if there is one.
func (d *drill) granted(nodes []*fleet.Node, key string, within time.Duration) *history.Op {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, n := range nodes {
			s, err := d.dial(n)
			if err != nil {
				continue
			}
			if c, err := s.Acquire(key, 0, time.Second, false); err == nil {
				<-c.Done
				if c.Op.Outcome == history.Granted {
					s.Close()
					return &c.Op
				}
			}
			s.Close()
		}
	}
	return nil
}

// giveBack releases a grant that must still hold.
func (d *drill) giveBack(place int, g history.Op) error {
	var last history.Op
	for end := time.Now().Add(serveWithin); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		s, err := d.dial(d.fleet.Nodes[place])
		if err != nil {
			continue
		}
		c, err := s.Release(g.Key, g.Token)
		if err == nil {
			<-c.Done
			last = c.Op
		}
		s.Close()
		if place = d.route.Leader(); last.Outcome == history.Released || last.Outcome == history.NotHeld {
			break
		}
	}
	if last.Outcome != history.Released {
		return fmt.Errorf("%v was not kept: %v", &g, &last)
	}
	return nil
}
