package main

import (
	"fmt"
	"time"

	"github.com/ticketing-go/ticketing/bench/history"
)

// single kills a single node and starts it again. Without a data directory it has forgotten everything, and its tokens
// begin anew: another fencing domain. With one it goes on above its tokens, after a grace for the holders that it has
// forgotten.
func single(d *drill) error {
	load := usual()
	d.forgets = true
	d.begin(load)
	for i := range d.count {
		d.pause(500*time.Millisecond, 1500*time.Millisecond)
		n, err := d.leader()
		if err != nil {
			return err
		}
		from := d.rec.Now()
		n.Kill()
		if !d.durable {
			d.end()
			d.above = 0
			d.begin(load)
			from = d.rec.Now()
		}
		if err := n.Start(); err != nil {
			return err
		}
		outage, _, err := d.served(from)
		if err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		d.result.rejoins = append(d.result.rejoins, outage)
		d.turn(load)
		if err := d.over(); err != nil {
			return err
		}
	}
	return nil
}

// forgetN takes out the answers N of processes that have forgotten the holder: they say nothing.
func forgetN(h *history.History) {
	by := map[uint64]int32{}
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Outcome == history.Granted {
			by[op.Token] = op.Node
		}
	}
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Outcome == history.NotHeld && by[op.Token] != op.Node {
			op.Outcome = history.Refused
		}
	}
}
