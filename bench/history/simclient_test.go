package history

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"
)

const keysOfSim = 6

func keyOfSim(i int) string { return fmt.Sprintf("key-%d", i) }

// simulate runs a minute of virtual time and returns what the clients saw, and how often the fault happened.
func simulate(seed uint64, bad fault, rate float64) (*History, int) {
	return simulateFor(time.Minute, 16, seed, bad, rate)
}

func simulateFor(end time.Duration, clients int, seed uint64, bad fault, rate float64) (*History, int) {
	s := &sim{rnd: rand.New(rand.NewPCG(seed, 0x71c)), bad: bad, rate: rate, keys: map[string]*simKey{}, stint: 1}
	for i := range clients {
		c := &simClient{s: s, id: int32(i), end: end}
		s.after(s.between(0, 50*time.Millisecond), c.begin)
	}
	for t := 5 * time.Second; t < end; t += s.between(4*time.Second, 12*time.Second) {
		s.at(t, s.changeLeader)
	}
	for len(s.agenda) > 0 {
		e := heap.Pop(&s.agenda).(event)
		s.now = e.at
		e.do()
	}
	return &s.h, s.fired
}

// simClient acquires and releases in a loop, as clients do: some wait, some do not, some let their lease run out, some
// release twice or what is not theirs.
type simClient struct {
	s     *sim
	id    int32
	x     *simSession
	end   time.Duration
	owner uint64
	old   []Op // grants seen
}

func (c *simClient) begin() {
	if c.s.now > c.end {
		return
	}
	if c.s.down {
		c.s.after(10*time.Millisecond, c.begin)
		return
	}
	if c.x == nil || c.x.dead || c.x.stint != c.s.stint {
		c.connect()
	}
	c.owner++
	s := c.s
	call := &simCall{s: c.x, then: c.acquired}
	call.op = Op{Kind: Acquire, Key: keyOfSim(int(c.id) % 3 * 2), Owner: c.owner, Return: Never,
		Lease: time.Duration(1+s.rnd.IntN(2)) * time.Second}
	if s.rnd.IntN(4) == 0 {
		call.op.Key = keyOfSim(s.rnd.IntN(keysOfSim))
	}
	if s.rnd.IntN(5) > 0 {
		call.op.Wait = time.Duration(1+s.rnd.IntN(3)) * time.Second
	}
	s.send(call)
	s.after(call.op.Wait+3*time.Second, func() {
		if !call.done && !call.s.dead {
			call.op.Gone = s.now
			s.finish(call, Unanswered)
		}
	})
}

// connect makes a session with the present leader.
func (c *simClient) connect() {
	c.x = &simSession{id: c.id, stint: c.s.stint}
	c.s.sessions = append(c.s.sessions, c.x)
}

// end is what a client sees of a session that has ended: nobody knows what became of what was under way.
func (s *sim) end(x *simSession) {
	x.dead = true
	calls := x.calls
	x.calls = nil
	for _, call := range calls {
		if !call.done {
			call.op.Gone, call.op.Return = s.now, Never
			s.finish(call, Unknown)
		}
	}
}

func (c *simClient) acquired(call *simCall) {
	s := c.s
	if call.op.Outcome != Granted {
		if len(c.old) > 0 && s.rnd.IntN(3) == 0 {
			g := c.old[s.rnd.IntN(len(c.old))]
			c.release(g, nil)
		}
		s.after(s.between(time.Millisecond, 20*time.Millisecond), c.begin)
		return
	}
	g := call.op
	c.old = append(c.old, g)
	s.after(s.between(time.Millisecond, 30*time.Millisecond), func() {
		switch n := s.rnd.IntN(40); {
		case n == 0: // let the lease run out
			s.after(s.between(0, 2*time.Second), c.begin)
		case n == 1: // late: about when the lease ends
			s.after(g.Lease-s.between(0, 60*time.Millisecond), func() { c.release(g, c.released) })
		default:
			c.release(g, c.released)
		}
	})
}

func (c *simClient) release(g Op, then func(*simCall)) {
	s := c.s
	if c.x.dead || s.down || c.x.stint != s.stint {
		if then != nil {
			s.after(20*time.Millisecond, func() { c.reconnect(); c.release(g, then) })
		}
		return
	}
	call := &simCall{s: c.x, then: then}
	call.op = Op{Kind: Release, Key: g.Key, Token: g.Token, Return: Never}
	s.send(call)
}

func (c *simClient) reconnect() {
	if !c.s.down && (c.x.dead || c.x.stint != c.s.stint) {
		c.connect()
	}
}

func (c *simClient) released(call *simCall) {
	s := c.s
	if call.op.Outcome == Unknown { // ask again until it is known
		g := Op{Key: call.op.Key, Token: call.op.Token}
		s.after(20*time.Millisecond, func() { c.reconnect(); c.release(g, c.released) })
		return
	}
	if s.rnd.IntN(10) == 0 { // once more
		c.release(Op{Key: call.op.Key, Token: call.op.Token}, nil)
	}
	s.after(s.between(0, 10*time.Millisecond), c.begin)
}
