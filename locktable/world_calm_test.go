package locktable_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

// calm ends all faults: everything asked is answered and everything held ends, within bounds.
func (w *world) calm() {
	for _, n := range w.nodes {
		n.paused, n.raft.transferring = false, false
	}
	const longest = 4*time.Second + 2*time.Second
	start := w.nodes[0].clock
	before := w.tokens()
	var busy string
	for turn := range 3000 {
		w.fairTurn()
		if turn%3 == 2 {
			w.time(1, 0)
		}
		if busy = w.busy(); busy == "" {
			return
		}
		if w.nodes[0].clock-start > longest {
			for _, token := range before {
				_, live := w.live[token]
				must(!live, "5: token %d outlives its lease", token)
			}
		}
	}
	must(false, "5: not at rest: %s", busy)
}

func (w *world) tokens() (ts []locktable.Token) {
	for t := range w.live {
		ts = append(ts, t)
	}
	slices.Sort(ts)
	return ts
}

func (w *world) fairTurn() {
	var lead *worldNode
	best := w.nodes[0]
	for _, n := range w.nodes {
		if n.raft.leader && (lead == nil || n.raft.term > lead.raft.term) {
			lead = n
		}
		if best.raft.behind(&n.raft) {
			best = n
		}
	}
	if lead == nil {
		elect(&best.raft, []*raft{&w.nodes[0].raft, &w.nodes[1].raft, &w.nodes[2].raft}, majority)
		lead = best
	}
	for _, n := range w.nodes {
		for len(n.raft.inbox) > 0 {
			n.raft.take()
		}
	}
	for range 2 {
		for _, m := range w.nodes {
			if m != lead {
				replicate(&lead.raft, &m.raft, len(lead.raft.log))
			}
		}
		lead.raft.advance(majority)
	}
	for i, n := range w.nodes {
		for len(n.raft.futures) > 0 {
			w.future(i, 0)
		}
		for n.applied < n.raft.commit {
			w.apply(n)
		}
		w.notice(i, 0)
		for loop := range worldLoops {
			for len(n.rings[loop]) > 0 {
				w.drain(i, loop)
			}
			for len(n.out[loop]) > 0 {
				w.writes(i, loop)
			}
		}
		w.tick(i, 0)
	}
	for _, conn := range slices.Clone(w.conns) {
		for range len(conn.c2s) + 1 {
			w.readFrom(conn)
		}
	}
	w.clientsGoOn(lead)
}

func (w *world) clientsGoOn(lead *worldNode) {
	for i, c := range w.clients {
		for range 20 {
			w.receive(i, 0)
		}
		for _, op := range c.ops {
			switch {
			case op.state == held && op.uid%3 > 0:
				op.state, op.released = done, op.token
				w.connect(c, lead, 0).release(op)
			case op.state == resend:
				op.state = asked
				w.send(op, w.connect(c, lead, 0))
			}
		}
	}
}

// busy is what is not at rest.
func (w *world) busy() string {
	var out []string
	for _, c := range w.clients {
		for _, o := range c.ops {
			if o.state == asked || o.state == resend {
				out = append(out, fmt.Sprintf("op %d", o.uid))
			}
		}
		for _, x := range c.conns {
			if x.open && len(x.releases) > 0 {
				out = append(out, fmt.Sprintf("release of %v", x.releases))
			}
		}
	}
	for _, t := range w.tokens() {
		out = append(out, fmt.Sprintf("token %d", t))
	}
	led := false
	for _, n := range w.nodes {
		c := n.table.Counts()
		led = led || n.table.Leading()
		if c.Keys+c.Held+c.Waiters+c.UndecidedAcquires+c.UndecidedReleases+c.RecordsInFlight > 0 {
			out = append(out, fmt.Sprintf("node %d: %+v", n.id, c))
		}
	}
	if !led {
		out = append(out, "no leader")
	}
	return strings.Join(out, ", ")
}
