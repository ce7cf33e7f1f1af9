package history

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// fault is what a simulated server does wrong.
type fault int

const (
	correct fault = iota
	doubleGrant
	earlyExpiry
	lateExpiry
	tokenReuse
	tokenRegression
	staleRelease
	releaseOther
	lostRelease
	lostWaiter
	forgottenWaiter
	overtaking
	grantAfterNo
	answerAfterNo
	amnesia
	hastyTimeout
	faults
)

var faultText = [...]string{"correct", "double grant", "early expiry", "late expiry", "token reuse across keys",
	"token regression", "stale release accepted", "release that frees another's lock", "lost release",
	"lost waiter (idle key)", "forgotten waiter (no answer)", "FIFO inversion", "grant after a definite no",
	"A after T", "holders forgotten at a leader change", "T before it is due"}

// sim is a lock server, its clients and the network between them in virtual time: one goroutine, and one seed that
// decides everything.
type sim struct {
	rnd    *rand.Rand
	now    time.Duration
	agenda agenda
	events int

	bad   fault
	rate  float64
	fired int

	keys    map[string]*simKey
	token   uint64
	skipped []uint64 // tokens of revoked grants: nobody has seen them
	stint   int32
	down    bool

	sessions []*simSession
	h        History
}

// simKey is the state of a key in the server.
type simKey struct {
	held  bool
	token uint64
	lease time.Duration // left when the leader's clock last stopped
	since time.Duration
	timer int // generation of the expiry that counts
	queue []*simCall
}

// simCall is a request under way.
type simCall struct {
	s       *simSession
	op      Op
	settled bool // the server has answered or dropped it
	done    bool // the client has its outcome
	then    func(*simCall)
}

// simSession keeps the order of its messages.
type simSession struct {
	id       int32
	stint    int32
	dead     bool
	lastUp   time.Duration
	lastDown time.Duration
	calls    []*simCall // under way or done, since the last sweep
}

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(event)) }
func (a *agenda) Pop() any {
	old := *a
	e := old[len(old)-1]
	*a = old[:len(old)-1]
	return e
}

func (s *sim) at(t time.Duration, do func()) {
	s.events++
	heap.Push(&s.agenda, event{max(t, s.now), s.events, do})
}

func (s *sim) after(d time.Duration, do func()) { s.at(s.now+d, do) }

// between is a random duration in [a, b).
func (s *sim) between(a, b time.Duration) time.Duration {
	return a + time.Duration(s.rnd.Int64N(int64(b-a)))
}

// delay of one message: mostly short, sometimes long.
func (s *sim) delay() time.Duration {
	if s.rnd.IntN(20) == 0 {
		return s.between(time.Millisecond, 10*time.Millisecond)
	}
	return s.between(20*time.Microsecond, 300*time.Microsecond)
}

// wrong says whether the planted fault happens at this opportunity.
func (s *sim) wrong(f fault) bool {
	if s.bad != f || s.rnd.Float64() >= s.rate {
		return false
	}
	s.fired++
	return true
}

func (s *sim) key(name string) *simKey {
	k := s.keys[name]
	if k == nil {
		k = &simKey{}
		s.keys[name] = k
	}
	return k
}

// newToken numbers a grant. Now and then a token goes to a grant that is revoked at once, so the sequence has gaps.
func (s *sim) newToken() uint64 {
	if s.token > 0 && s.wrong(tokenReuse) {
		return s.token
	}
	if len(s.skipped) > 0 && s.wrong(tokenRegression) {
		return s.skipped[s.rnd.IntN(len(s.skipped))]
	}
	s.token++
	if s.rnd.IntN(10) == 0 {
		s.skipped = append(s.skipped, s.token)
		s.token++
	}
	return s.token
}

func (s *sim) grant(name string, c *simCall, tell bool) {
	k := s.key(name)
	k.held, k.token, k.lease = true, s.newToken(), c.op.Lease
	s.arm(name, k)
	c.settled = true
	if tell {
		s.reply(c, Granted, k.token)
	}
}

// arm starts the expiry of a held key from what is left of its lease.
func (s *sim) arm(name string, k *simKey) {
	k.timer++
	k.since = s.now
	timer, stint, left := k.timer, s.stint, k.lease
	if s.wrong(earlyExpiry) {
		left /= 2
	}
	left += left / 1000
	if s.wrong(lateExpiry) {
		left += 400 * time.Millisecond
	}
	s.after(left+s.between(0, 5*time.Millisecond), func() {
		if k.timer == timer && s.stint == stint && !s.down {
			s.free(name, k)
		}
	})
}

// free ends a hold and hands the key over.
func (s *sim) free(name string, k *simKey) {
	k.held = false
	k.timer++
	if len(k.queue) > 0 && s.wrong(lostWaiter) {
		return
	}
	i := 0
	if len(k.queue) > 1 && s.wrong(overtaking) {
		i = 1
	}
	for len(k.queue) > i {
		c := k.queue[i]
		k.queue = append(k.queue[:i:i], k.queue[i+1:]...)
		if c.settled {
			continue
		}
		if s.wrong(forgottenWaiter) {
			c.settled = true
			continue
		}
		if s.wrong(grantAfterNo) {
			s.reply(c, TimedOut, 0) // and yet it gets the key, below
			s.grant(name, c, false)
			return
		}
		s.grant(name, c, true)
		return
	}
}

func (s *sim) acquire(c *simCall) {
	k := s.key(c.op.Key)
	waiting := false
	for _, w := range k.queue {
		waiting = waiting || !w.settled
	}
	switch {
	case !k.held && !waiting:
		s.grant(c.op.Key, c, true)
	case k.held && s.wrong(doubleGrant):
		s.grant(c.op.Key, c, true)
	case c.op.Wait == 0:
		c.settled = true
		s.reply(c, TimedOut, 0)
	case s.rnd.IntN(50) == 0:
		c.settled = true
		s.reply(c, Busy, 0)
	default:
		k.queue = append(k.queue, c)
		due := c.op.Wait - 100*time.Millisecond
		if s.wrong(hastyTimeout) {
			due -= 300 * time.Millisecond
		}
		stint := s.stint
		s.after(due+s.between(0, 10*time.Millisecond), func() {
			if s.stint != stint || c.settled {
				return
			}
			c.settled = true
			s.reply(c, TimedOut, 0)
			if s.wrong(answerAfterNo) {
				s.reply(c, Granted, s.newToken())
			}
		})
	}
}

func (s *sim) release(c *simCall) {
	k := s.key(c.op.Key)
	c.settled = true
	if k.held && k.token == c.op.Token {
		s.reply(c, Released, c.op.Token)
		if !s.wrong(lostRelease) {
			s.free(c.op.Key, k)
		}
		return
	}
	if s.wrong(staleRelease) {
		s.reply(c, Released, c.op.Token)
		return
	}
	s.reply(c, NotHeld, c.op.Token)
	if k.held && s.wrong(releaseOther) {
		s.free(c.op.Key, k)
	}
}

// send gives a request to the server behind everything that the session sent before.
func (s *sim) send(c *simCall) {
	x := c.s
	if len(x.calls) >= 64 { // sweep
		x.calls = slices.DeleteFunc(x.calls, func(c *simCall) bool { return c.done })
	}
	x.calls = append(x.calls, c)
	c.op.Call, c.op.Session, c.op.Node = s.now, x.id, x.stint
	x.lastUp = max(x.lastUp, s.now+s.delay())
	s.at(x.lastUp, func() {
		if s.down || x.stint != s.stint {
			return
		}
		if c.op.Kind == Acquire {
			s.acquire(c)
		} else {
			s.release(c)
		}
	})
	if c.op.Kind == Acquire && s.rnd.IntN(2) == 0 { // something behind it that is answered at once
		at := x.lastUp
		s.at(at, func() {
			if s.down || x.stint != s.stint {
				return
			}
			x.lastDown = max(x.lastDown, s.now+s.delay())
			s.at(x.lastDown, func() {
				if !c.done && !x.dead {
					c.op.Queued = s.now
				}
			})
		})
	}
}

// reply carries an answer to the client behind everything that was answered before.
func (s *sim) reply(c *simCall, o Outcome, token uint64) {
	x := c.s
	x.lastDown = max(x.lastDown, s.now+s.delay())
	s.at(x.lastDown, func() {
		if x.dead {
			return
		}
		if c.done {
			s.h.Strays = append(s.h.Strays, fmt.Sprintf("%v for %v", o, &c.op))
			return
		}
		c.op.Return, c.op.Token = s.now, token
		s.finish(c, o)
	})
}

func (s *sim) finish(c *simCall, o Outcome) {
	c.done = true
	c.op.Outcome = o
	s.h.Ops = append(s.h.Ops, c.op)
	if c.then != nil {
		c.then(c)
	}
}

// changeLeader ends every session, keeps what was committed, forgets the queues, and stops the lease clock for the
// time without a leader.
func (s *sim) changeLeader() {
	s.down = true
	from := s.now
	for _, x := range s.sessions {
		s.after(s.between(0, 3*time.Millisecond), func() { s.end(x) })
	}
	s.sessions = nil
	for _, k := range s.keys { // order does not matter: every key is treated alike
		k.queue = nil
		k.lease -= s.now - k.since
	}
	s.after(s.between(200*time.Millisecond, 800*time.Millisecond), func() {
		s.down = false
		s.stint++
		for i := 0; i < keysOfSim; i++ {
			name := keyOfSim(i)
			if k := s.key(name); k.held {
				if s.wrong(amnesia) {
					k.held = false
					continue
				}
				s.arm(name, k)
			}
		}
		s.h.Unstable = append(s.h.Unstable, Window{from, s.now + 50*time.Millisecond})
	})
}
