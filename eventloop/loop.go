package eventloop

import (
	"context"
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/ticketing-go/ticketing/codec"
)

// loop is one event loop and its sessions. Only kick, tickSoon and the counters may be used off the loop.
type loop struct {
	e     *Engine
	idx   int
	el    gnet.EventLoop // set once, before ready
	ready atomic.Bool

	kicked  atomic.Bool // a drain is under way
	ticking atomic.Bool // a tick is under way
	drains  gnet.Runnable
	ticks   gnet.Runnable
	polls   gnet.Runnable
	poller  *time.Timer // runs polls; armed while stalled is not empty

	now    time.Duration // when the loop was last entered
	depth  int           // gnet calls OnClose from inside Write
	handed bool          // Host was called and not yet flushed

	slots   []slot
	free    []int
	wheel   wheel
	blocked []*session // those for whose requests Host had no room, in the order in which they were refused
	stalled []*session // those with bytes that the kernel has not taken, and those that linger with some
	dirty   []*session // those with replies gathered by this drain
	urgent  int        // of those, how many have a grant among them
	bufs    [][]byte   // spare buffers for replies
	ports   []boundPort
	request codec.Request // scratch of consume
	plain   []byte        // scratch of TLS: what was decrypted
	cipher  []byte        // scratch of TLS: what is to be written
	n       loopCounters
}

type slot struct {
	s          *session
	generation uint32
}

// boundPort is a port by gnet's own address value, of which there is one for each loop and listener.
type boundPort struct {
	addr net.Addr
	port *port
}

func newLoop(e *Engine, idx int) *loop {
	l := &loop{e: e, idx: idx}
	on := func(f func()) gnet.Runnable {
		return gnet.RunnableFunc(func(context.Context) error {
			l.enter()
			f()
			l.leave()
			return nil
		})
	}
	l.drains = on(l.drain)
	l.ticks = on(l.tick)
	l.polls = on(l.poll)
	return l
}

// enter begins a run on the loop; runs nest.
func (l *loop) enter() {
	l.depth++
	if l.depth == 1 {
		l.now = l.e.now()
	}
}

// leave ends a run: what was handed to the Host is flushed, replies that are due by then are written, and the time is
// booked. A kick that comes meanwhile needs no task of gnet's; a Host that answers within Flush never does.
func (l *loop) leave() {
	if l.depth == 1 {
		if l.handed {
			mine := l.kicked.CompareAndSwap(false, true)
			l.flushHost()
			if mine {
				l.drain()
				// No second drain: a Host without room would be offered the same for ever.
				l.flushHost()
			}
		}
		l.n.busy.Add(int64(l.e.now() - l.now))
	}
	l.depth--
}

func (l *loop) flushHost() {
	if l.handed {
		l.handed = false
		l.e.cfg.Host.Flush(l.idx)
	}
}

func (l *loop) kick() {
	if !l.kicked.Load() && l.kicked.CompareAndSwap(false, true) {
		_ = l.el.Execute(context.Background(), l.drains)
	}
}

func (l *loop) tickSoon() {
	if l.ready.Load() && l.ticking.CompareAndSwap(false, true) {
		_ = l.el.Execute(context.Background(), l.ticks)
	}
}

func (l *loop) tick() {
	l.ticking.Store(false)
	l.wheel.advance(l.now)
}

// portOf finds the listener that a connection came by.
func (l *loop) portOf(c gnet.Conn) *port {
	a := c.LocalAddr()
	for i := range l.ports {
		if l.ports[i].addr == a {
			return l.ports[i].port
		}
	}
	text := a.String()
	for i := range l.e.ports {
		if p := &l.e.ports[i]; p.text == text {
			l.ports = append(l.ports, boundPort{a, p})
			return p
		}
	}
	return nil
}

// open makes a session of a new connection; false: it is to be closed without a byte.
func (l *loop) open(c gnet.Conn) bool {
	e := l.e
	if e.refusing.Load() {
		l.n.refused.Add(1)
		return false
	}
	p := l.portOf(c)
	if p == nil {
		return false
	}
	s := &session{l: l, c: c, wire: p.wire, opened: l.now, lastWrite: l.now}
	if e.lobby.admit(s, l.now) {
		l.n.accepted.Add(1)
	} else {
		l.n.overCap.Add(1)
		if e.cfg.TLS == nil || !e.lobby.turnAway() {
			return false
		}
		s.turned, s.counted = true, true
	}
	e.n.live.Add(1)
	_ = c.SetKeepAlive(true, keepAliveIdle, keepAliveInterval, keepAliveCount)
	setUserTimeout(c.Fd())
	s.pre = &prelude{hello: p.hello}
	l.place(s)
	c.SetContext(s)
	if s.turned {
		l.wheel.add(s, l.now+turnTimeout)
	} else {
		l.wheel.add(s, l.now+authTimeout)
	}
	if e.cfg.TLS != nil {
		s.tls = newSecure(s, e.cfg.TLS)
		return true
	}
	s.challenge()
	return true
}

// place gives a session its name.
func (l *loop) place(s *session) {
	var i int
	if n := len(l.free); n > 0 {
		i = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		i = len(l.slots)
		l.slots = append(l.slots, slot{generation: 1})
	}
	l.slots[i].s = s
	s.id = NewSessionID(l.idx, i, l.slots[i].generation)
}

// vacate frees the name of a session, which is not given again.
func (l *loop) vacate(s *session) {
	i := s.id.Slot()
	l.slots[i].s = nil
	if l.slots[i].generation == math.MaxUint32 {
		return // spent
	}
	l.slots[i].generation++
	l.free = append(l.free, i)
}

// find returns the session of a name if it still takes replies.
func (l *loop) find(id SessionID) *session {
	if i := id.Slot(); i < len(l.slots) && l.slots[i].generation == id.Generation() {
		if s := l.slots[i].s; s != nil && s.takesReplies() {
			return s
		}
	}
	return nil
}

// sessions lists those that have a connection.
func (l *loop) sessions() []*session {
	var all []*session
	for _, sl := range l.slots {
		if sl.s != nil && sl.s.state != gone {
			all = append(all, sl.s)
		}
	}
	return all
}

// take and give lend buffers for replies.
func (l *loop) take() []byte {
	if n := len(l.bufs); n > 0 {
		b := l.bufs[n-1]
		l.bufs = l.bufs[:n-1]
		return b[:0]
	}
	return make([]byte, 0, 1<<10)
}

func (l *loop) give(b []byte) { l.bufs = append(l.bufs, b) }

// drain writes the replies that are due. A session's replies of one drain go out together even if others stand between
// them: order is kept for each session alone.
func (l *loop) drain() {
	l.kicked.Store(false) // before the first look: a kick that comes later is not lost
	host := l.e.cfg.Host
	taken := false
	for {
		id, r, ok := host.NextReply(l.idx)
		if !ok {
			break
		}
		taken = true
		s := l.find(id)
		if s == nil {
			if r.Kind == codec.Granted {
				host.Undelivered(id, r)
				l.handed = true
				l.n.undelivered.Add(1)
			}
			continue
		}
		if r.Kind == codec.Left {
			s.flush()
			s.left()
			continue
		}
		if s.run == nil {
			if len(l.dirty) == dirtySessions {
				l.flushAll()
			}
			s.run = l.take()
			l.dirty = append(l.dirty, s)
		}
		var after codec.After
		s.run, after = s.wire.AppendReply(s.run, r)
		s.replies++
		if r.Kind == codec.Granted && !s.urgent {
			s.urgent = true
			l.urgent++
		}
		if after == codec.End {
			s.flush()
			s.end(nil)
		} else if s.replies == repliesPerWrite {
			s.flush()
		}
	}
	if taken {
		l.flushAll()
		host.RepliesTaken(l.idx)
	}
	l.unblock()
}

// flushAll writes what was gathered. Grants go before the answers to others: the next holder waits for its, and each write
// ahead of it would cost it a system call's time.
func (l *loop) flushAll() {
	if l.urgent > 0 && l.urgent < len(l.dirty) {
		for _, s := range l.dirty {
			if s.urgent {
				s.flush()
			}
		}
	}
	l.urgent = 0
	for i, s := range l.dirty {
		s.urgent = false
		s.flush()
		l.give(s.run)
		s.run = nil
		l.dirty[i] = nil
	}
	l.dirty = l.dirty[:0]
}

// unblock offers again what the Host had no room for. Who was served and needs more goes behind those who got nothing: one
// that always has more to send would otherwise take all the room there is each time.
func (l *loop) unblock() {
	if len(l.blocked) == 0 {
		return
	}
	again := l.blocked
	l.blocked = nil
	var served []*session
	for _, s := range again {
		s.blocked = false
		before := s.pending()
		if s.muted() {
			s.salvage()
		} else {
			s.resume()
		}
		if last := len(l.blocked) - 1; s.blocked && s.pending() < before {
			l.blocked = l.blocked[:last]
			served = append(served, s)
		}
	}
	l.blocked = append(l.blocked, served...)
}
