package locktable_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

// worldStep is one step with two numbers that choose whom it concerns.
type worldStep struct {
	name string
	a, b int
}

// worldSteps are all steps with their usual weights; a seed's profile has more or less of some.
var worldSteps = []struct {
	name   string
	weight int
	play   func(w *world, a, b int)
}{
	{"time", 14, (*world).time}, {"elect", 3, (*world).elect}, {"replicate", 16, (*world).replicate},
	{"take", 9, (*world).raftTakes}, {"apply", 16, (*world).applies}, {"future", 7, (*world).future},
	{"notice", 5, (*world).notice}, {"transfer", 3, (*world).transfer}, {"stepdown", 1, (*world).stepDown},
	{"pause", 2, (*world).pause}, {"snapshot", 1, (*world).snapshot}, {"install", 2, (*world).install},
	{"restart", 1, (*world).restart}, {"tick", 8, (*world).tick}, {"drain", 16, (*world).drain},
	{"read", 16, (*world).read}, {"write", 14, (*world).writes}, {"acquire", 14, (*world).acquire},
	{"resend", 6, (*world).resend}, {"release", 8, (*world).release}, {"receive", 12, (*world).receive},
	{"break", 4, (*world).breaks}, {"die", 1, (*world).die}, {"kick", 1, (*world).kick}, {"flow", 22, (*world).flow},
}

var worldProfiles = []map[string]int{
	{},
	{"elect": 12, "notice": 1, "apply": 8, "flow": 14, "acquire": 20},
	{"transfer": 12, "take": 14, "flow": 14, "future": 3},
	{"elect": 10, "notice": 3, "future": 3, "apply": 10},
	{"break": 14, "resend": 16, "kick": 4, "read": 10},
	{"pause": 8, "flow": 12},
	{"time": 30, "die": 4},
	{"elect": 8, "snapshot": 6, "install": 8, "restart": 4, "notice": 3},
}

func (w *world) node(a int) *worldNode { return w.nodes[a%worldNodes] }

func (w *world) time(a, b int) {
	dt := float64([]int{10, 50, 200, 600}[a%4]) * float64(time.Millisecond)
	for _, n := range w.nodes {
		n.clock += time.Duration(dt * n.rate)
	}
	for _, c := range append(slices.Clone(w.clients), w.graves...) {
		c.clock += time.Duration(dt * c.rate)
	}
}

func (w *world) elect(a, b int) {
	n := w.node(a)
	voters := []*worldNode{n, w.node(a + 1 + b%2)}
	if b%3 == 0 {
		voters = append(voters, w.node(a+2-b%2))
	}
	var rafts []*raft
	for _, v := range voters {
		if v.paused {
			return
		}
		rafts = append(rafts, &v.raft)
	}
	elect(&n.raft, rafts, majority)
}

func (w *world) replicate(a, b int) {
	n, m := w.node(a), w.node(a+1+b%2)
	if !n.raft.leader || n.paused || m.paused {
		return
	}
	size := len(n.raft.log)
	upto := size
	if b%5 == 0 {
		upto = max(m.raft.commit, size-1-b%3)
	}
	if upto <= size {
		replicate(&n.raft, &m.raft, upto)
		if b%7 != 0 {
			n.raft.advance(majority)
		}
	}
}

func (w *world) raftTakes(a, b int) {
	if n := w.node(a); !n.paused {
		for range 1 + b%2 {
			n.raft.take()
		}
	}
}

func (w *world) applies(a, b int) {
	n := w.node(a)
	for range 1 + b%4 {
		if n.paused || n.applied >= n.raft.commit {
			return
		}
		w.apply(n)
	}
}

// future is the table's side hearing that a record was refused, or that the leader that took it lost its place.
func (w *world) future(a, b int) {
	n := w.node(a)
	if len(n.raft.futures) == 0 || n.paused {
		return
	}
	f := n.raft.futures[0]
	n.raft.futures = n.raft.futures[1:]
	if f.lost {
		if f.p.by == n.by {
			n.starting = false
			n.table.Lose(n.clock)
		}
	} else {
		w.counts["refused"]++
		for token := range w.unread {
			w.unread[token] = n.clock
		}
		if f.p.by == n.by && f.p.seq == 0 {
			n.starting = false
		}
		n.table.Refuse(n.clock, f.p.by, f.p.seq)
	}
	w.pump(n)
}

// notice is the table's side hearing of the state of leadership.
func (w *world) notice(a, b int) {
	n := w.node(a)
	switch {
	case n.paused:
		return
	case !n.raft.leader:
		if !n.raft.quiet {
			n.starting = false
			n.table.Lose(n.clock)
			n.raft.quiet = true
		}
	case !n.table.Leading() && !n.starting:
		n.by.Stint++
		n.starting = true
		r := n.table.Begin(n.clock, n.by, locktable.StartTerms{Addresses: fmt.Sprint(n.id)})
		n.raft.inbox = append(n.raft.inbox, &proposal{by: r.By, bytes: locktable.AppendRecord(nil, r)})
		n.raft.quiet = true
	}
	w.pump(n)
}

func (w *world) transfer(a, b int) {
	n := w.node(a)
	n.raft.transferring = n.raft.leader && !n.raft.transferring
}

func (w *world) stepDown(a, b int) {
	if n := w.node(a); !n.paused {
		n.raft.stepDown()
	}
}

func (w *world) pause(a, b int) { w.node(a).paused = !w.node(a).paused }

func (w *world) snapshot(a, b int) {
	n := w.node(a)
	n.snapAt, n.snapshot = n.applied, n.table.Snapshot(nil)
}

// install is a leader's snapshot taking the place of the records up to it.
func (w *world) install(a, b int) {
	n, m := w.node(a), w.node(a+1+b%2)
	if !n.raft.leader || n.paused || m.paused || n.snapAt <= m.applied {
		return
	}
	replicate(&n.raft, &m.raft, len(n.raft.log))
	if n.raft.leader && n.snapAt <= m.raft.commit {
		m.applied, m.starting = n.snapAt, false
		must(m.table.Restore(m.clock, n.snapshot) == nil, "6: a snapshot cannot be restored")
		must(string(m.table.Snapshot(nil)) == string(n.snapshot), "6: a snapshot restored is another")
		w.pump(m)
	}
}

func (w *world) restart(a, b int) {
	n := w.node(a)
	w.boots++
	for _, c := range n.conns {
		c.served = false
		w.conns = remove(w.conns, c)
	}
	n.raft.restart()
	w.boot(n)
}

func (w *world) tick(a, b int) {
	if n := w.node(a); !n.paused {
		n.table.Tick(n.clock)
		w.pump(n)
	}
}

func (w *world) drain(a, b int) {
	n, loop := w.node(a), b%worldLoops
	for range 1 + b%3 {
		if len(n.rings[loop]) == 0 || n.paused {
			break
		}
		c := n.rings[loop][0]
		n.rings[loop] = n.rings[loop][1:]
		w.take(n, c)
	}
	w.pump(n)
}

// read is a loop reading a frame, or the end of a stream.
func (w *world) read(a, b int) {
	if len(w.conns) > 0 {
		w.readFrom(w.conns[a%len(w.conns)])
	}
}

func (w *world) readFrom(conn *worldConn) {
	switch n := conn.node; {
	case n.paused:
	case len(conn.c2s) > 0:
		n.rings[conn.loop()] = append(n.rings[conn.loop()], conn.c2s[0])
		conn.c2s = conn.c2s[1:]
	case !conn.open:
		w.hangUp(conn)
	}
}

// kick is the server closing a connection of its own accord.
func (w *world) kick(a, b int) {
	if len(w.conns) > 0 {
		w.hangUp(w.conns[a%len(w.conns)])
	}
}

func (w *world) writes(a, b int) {
	n, loop := w.node(a), b%worldLoops
	for range 1 + b%4 {
		if len(n.out[loop]) == 0 || n.paused {
			return
		}
		answer := n.out[loop][0]
		n.out[loop] = n.out[loop][1:]
		w.write(n, answer)
	}
}

// pick is an open connection of a client, or a new one.
func (w *world) pick(c *worldClient, b int) *worldConn {
	c.conns = slices.DeleteFunc(c.conns, func(x *worldConn) bool { return !x.open })
	if len(c.conns) > 0 && b%3 > 0 {
		return c.conns[b/3%len(c.conns)]
	}
	nodes := slices.Clone(w.nodes)
	leads := slices.DeleteFunc(slices.Clone(w.nodes), func(n *worldNode) bool { return !n.table.Leading() })
	if len(leads) > 0 && b%5 > 0 {
		nodes = leads
	}
	return w.connect(c, nodes[b%len(nodes)], b/4%worldLoops)
}

func (w *world) acquire(a, b int) {
	c := w.clients[a%worldClients]
	busy := 0
	for _, o := range c.ops {
		if o.state == asked || o.state == held || o.state == resend {
			busy++
		}
	}
	if !c.alive || busy > 3 || len(w.ops) > 990 {
		return
	}
	conn := w.pick(c, b)
	names := []string{"a", "b", "c"}
	keys := keySet(names[a/4%3])
	if c.wire == wire3 && a%2 > 0 {
		x, y := b%3, (b+1+a%2)%3
		keys = keySet(names[min(x, y)], names[max(x, y)])
		if b%7 == 0 {
			keys = keySet(names...)
		}
		if x == y {
			keys = keySet(names[x])
		}
	}
	wait := []time.Duration{0, 0, 600 * time.Millisecond, 1500 * time.Millisecond, 4 * time.Second}[b%5]
	if c.wire == wire03 && wait == 0 {
		wait = waitForever
	}
	op := &worldOp{uid: len(w.ops), client: c, keys: keys, wait: wait, sent: c.clock, floor: c.seen,
		lease: time.Duration(1+(a+b)%3)*time.Second + time.Duration(len(w.ops))*time.Millisecond}
	w.ops, c.ops = append(w.ops, op), append(c.ops, op)
	w.send(op, conn)
}

func (w *world) resend(a, b int) {
	c := w.clients[1]
	for _, op := range c.ops {
		if c.alive && op.state == resend {
			op.state = asked
			w.send(op, w.pick(c, b))
			return
		}
	}
}

// release is a holder releasing, or releasing again what it released before.
func (w *world) release(a, b int) {
	c := w.clients[a%worldClients]
	var ops []*worldOp
	for _, o := range c.ops {
		if o.state == held || o.released != 0 && b%4 == 0 {
			ops = append(ops, o)
		}
	}
	if !c.alive || len(ops) == 0 {
		return
	}
	op := ops[a/4%len(ops)]
	op.state, op.released = done, op.token
	conn := w.pick(c, b)
	conn.release(op)
	if b%9 == 0 {
		conn.release(op)
	}
}

func (w *world) receive(a, b int) {
	c := w.clients[a%worldClients]
	if !c.alive {
		return
	}
	for _, conn := range slices.Clone(c.conns) {
		if conn.open && len(conn.s2c) > 0 {
			answer := conn.s2c[0]
			conn.s2c = conn.s2c[1:]
			w.answer(conn, answer)
			return
		}
	}
	for _, conn := range c.conns {
		if conn.open && !conn.served {
			w.counts["close"]++
			w.brokenOff(conn)
			return
		}
	}
}

func (w *world) breaks(a, b int) {
	c := w.clients[a%worldClients]
	open := slices.DeleteFunc(slices.Clone(c.conns), func(x *worldConn) bool { return !x.open })
	if len(open) > 0 {
		conn := open[b%len(open)]
		w.brokenOff(conn)
		if b%2 > 0 {
			conn.c2s = conn.c2s[:min(len(conn.c2s), b%3)]
		}
	}
}

// die is a client dying with all its connections; another comes in its place.
func (w *world) die(a, b int) {
	if a%4 > 0 {
		return
	}
	c := w.clients[b%worldClients]
	for _, conn := range c.conns {
		if conn.open {
			w.brokenOff(conn)
		}
	}
	for _, op := range c.ops {
		if op.state == held || op.state == asked || op.state == resend {
			op.state = gone
		}
	}
	fresh := w.client(c.id, c.rate)
	fresh.clock = c.clock
	w.clients[c.id] = fresh
	c.alive = false
	w.graves = append(w.graves, c)
}

// flow is some healthy turns in a row, so that traces get somewhere.
func (w *world) flow(a, b int) {
	i := slices.IndexFunc(w.nodes, func(n *worldNode) bool { return n.raft.leader && !n.paused })
	if i < 0 {
		w.elect(a, b)
		return
	}
	w.notice(i, 0)
	for _, conn := range slices.Clone(w.conns) {
		if conn.node.id == i {
			w.readFrom(conn)
		}
	}
	w.drain(i, 2)
	w.drain(i, 3)
	w.tick(i, 0)
	w.raftTakes(i, 1)
	w.replicate(i, 1+2*(b%2))
	w.replicate(i, 1+2*(b%2))
	w.applies(i, 3)
	if b%2 > 0 {
		w.writes(i, 2)
		w.writes(i, 3)
		w.receive(a, b)
		w.receive(a+1, b)
	}
}
