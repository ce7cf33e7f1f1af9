package main

import (
	"fmt"
	"syscall"
	"time"

	"github.com/ticketing-go/ticketing/bench/drill/fleet"
)

// rounds makes a fault again and again, until the count, an error, or a violation. round gets the leader.
func (d *drill) rounds(round func(leader *fleet.Node) error) error {
	d.begin(usual())
	for i := range d.count {
		d.pause(100*time.Millisecond, 600*time.Millisecond)
		leader, err := d.leader()
		if err != nil {
			return err
		}
		if err := round(leader); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		d.turn(usual())
		if err := d.over(); err != nil {
			return err
		}
	}
	return nil
}

// calm makes no fault: half a second of load a round.
func calm(d *drill) error {
	d.steady = true
	return d.rounds(func(*fleet.Node) error { return nil })
}

// The outage of the hot key, whose hand-over may have died with the leader, is longer: as long as its lease. It is
// measured at every tenth kill, behind which the service is left alone for long enough.
const (
	hotEvery  = 10
	hotWithin = 6 * time.Second
)

// killLeader kills the leader, waits for the next one, starts the dead node again, and waits until all are ready.
func killLeader(d *drill) error {
	return d.rounds(func(leader *fleet.Node) error {
		from := d.rec.Now()
		leader.Kill()
		outage, _, err := d.served(from)
		if err != nil {
			return err
		}
		d.result.outages = append(d.result.outages, outage)
		number := leader.Number()
		if err := d.restart(leader); err != nil {
			return err
		}
		if n := d.result.done + 1; n%hotEvery == 0 || n == d.count {
			d.kills = append(d.kills, kill{from, number})
			time.Sleep(hotWithin - min(hotWithin, d.rec.Now()-from))
		}
		return nil
	})
}

// restart starts a node and waits until all are ready.
func (d *drill) restart(nodes ...*fleet.Node) error {
	for _, n := range nodes {
		if err := n.Start(); err != nil {
			return err
		}
	}
	took, err := d.ready()
	if err != nil {
		return err
	}
	d.result.rejoins = append(d.result.rejoins, took)
	return nil
}

// killFollower kills one follower at a time. The leader stays, and its clients must see nothing of it.
func killFollower(d *drill) error {
	d.steady = true
	return d.rounds(func(leader *fleet.Node) error {
		follower := d.others(leader)[0]
		follower.Kill()
		d.pause(0, 500*time.Millisecond)
		return d.restart(follower)
	})
}

// pauseLeader stops the leader's process for 0.5 to 10 election timeouts and lets it go on: what it then answers must
// not be stale.
func pauseLeader(d *drill) error {
	return d.rounds(func(leader *fleet.Node) error {
		length := time.Duration((0.5 + 9.5*d.rnd.Float64()) * float64(d.election))
		from := d.rec.Now()
		if err := leader.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		at, place, ok := d.crew.FirstGrant(length)
		if ok && d.fleet.Nodes[place] != leader {
			d.result.outages = append(d.result.outages, at-from)
		}
		time.Sleep(length - min(length, d.rec.Now()-from))
		if err := leader.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		_, _, err := d.served(from)
		d.rec.Unstable(from, d.rec.Now()+time.Second) // until the woken node knows that it is deposed
		if err != nil {
			return err
		}
		_, err = d.ready()
		return err
	})
}

// isolateLeader pauses all followers for 0.5 to 5 election timeouts: the leader must lose its lead, and may well be the
// next leader.
func isolateLeader(d *drill) error {
	return d.rounds(func(leader *fleet.Node) error {
		length := time.Duration((0.5 + 4.5*d.rnd.Float64()) * float64(d.election))
		from := d.rec.Now()
		for _, n := range d.others(leader) {
			if err := n.Signal(syscall.SIGSTOP); err != nil {
				return err
			}
		}
		time.Sleep(length)
		healed := d.rec.Now()
		for _, n := range d.others(leader) {
			if err := n.Signal(syscall.SIGCONT); err != nil {
				return err
			}
		}
		outage, _, err := d.served(from)
		if err != nil {
			return err
		}
		d.result.heals = append(d.result.heals, max(0, from+outage-healed))
		if _, err = d.ready(); err != nil {
			return err
		}
		d.pause(3*time.Second, 4*time.Second) // leases that ran at the change end before the next one
		return nil
	})
}

// replaceAll replaces one node after the other, as a rolling restart that waits for readiness does.
func replaceAll(d *drill) error {
	next := 0
	return d.rounds(func(leader *fleet.Node) error {
		n := d.fleet.Nodes[next]
		next = (next + 1) % len(d.fleet.Nodes)
		from := d.rec.Now()
		if err := n.Stop(); err != nil {
			d.result.failures = append(d.result.failures, err.Error())
		}
		if n == leader {
			outage, _, err := d.served(from)
			if err != nil {
				return err
			}
			d.result.outages = append(d.result.outages, outage)
		}
		return d.restart(n)
	})
}

// killMajority kills a majority at once. What is left must grant nothing, and must come back only where the memory is
// on disk; where it was lost, all must refuse, until a new cluster is formed.
func killMajority(d *drill) error {
	for i := range d.count {
		d.begin(usual())
		d.pause(300*time.Millisecond, 800*time.Millisecond)
		leader, err := d.leader()
		if err != nil {
			return err
		}
		if err := d.majority(leader); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		d.end()
		d.result.done++
		if err := d.over(); err != nil {
			return err
		}
		if d.durable {
			continue
		}
		if d.cli == "" { // FORM=auto begins at 1 again
			d.above = 0
		}
		if err := d.fleet.Reform(d.above+1, readyWithin); err != nil {
			return fmt.Errorf("round %d: %w: %w", i+1, errStall, err)
		}
	}
	return nil
}

func (d *drill) majority(leader *fleet.Node) error {
	nodes := d.others(leader)
	if d.rnd.IntN(2) == 0 { // the leader among the dead
		nodes = append([]*fleet.Node{leader}, nodes...)
	}
	dead := nodes[:len(d.fleet.Nodes)/2+1]
	from := d.rec.Now()
	for _, n := range dead {
		n.Signal(syscall.SIGKILL)
	}
	for _, n := range dead {
		n.Kill()
	}
	if err := d.nobodyGrants("by a minority"); err != nil {
		d.rec.Unstable(from, d.rec.Now())
		return err
	}
	for _, n := range dead {
		if err := n.Start(); err != nil {
			return err
		}
	}
	if d.durable {
		started := d.rec.Now()
		outage, _, err := d.served(from)
		if err != nil {
			return err
		}
		d.result.heals = append(d.result.heals, from+outage-started)
		_, err = d.ready()
		return err
	}
	err := d.nobodyGrants("after the memory of a majority was lost")
	d.rec.Unstable(from, d.rec.Now())
	if err != nil {
		return err
	}
	for _, n := range d.fleet.Nodes {
		if n.Ready() == nil {
			return fmt.Errorf("slot %d says that it is ready after the memory of a majority was lost", n.Slot)
		}
	}
	return nil
}

// nobodyGrants watches for two seconds, after half a second in which what was under way may end.
func (d *drill) nobodyGrants(when string) error {
	time.Sleep(500 * time.Millisecond)
	if at, place, ok := d.crew.FirstGrant(2 * time.Second); ok {
		d.result.violations++
		return fmt.Errorf("slot %d granted a key at %v %s", place, at, when)
	}
	return nil
}
