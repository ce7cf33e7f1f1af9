package locktable

import (
	"math"
	"slices"
	"time"
)

// Table is one node's lock table. New makes it; it belongs to one goroutine.
type Table struct {
	limits Limits
	sink   Sink

	rep   replicated
	index index // of active keys
	held  int   // keys with a holder

	results results  // of the record applied last
	dropped []*grant // grants that it ended
	touched []*key   // keys that may have become grantable or idle since the last settle

	stint // empty unless Leading

	keys    pool[key]
	grants  pool[grant]
	waiters pool[waiter]

	counts       Counts
	waited, kept Histogram
}

// New makes an empty table that leads nothing. first is the lowest token that it may issue, at least 1.
func New(limits Limits, first Token, sink Sink) *Table {
	t := &Table{limits: limits, sink: sink, index: newIndex()}
	t.rep.next = max(first, 1)
	t.keysGate = NewGate(limits.MaxKeys)
	t.waitersGate = NewGate(limits.MaxTotalWaiters)
	return t
}

// Leading says whether a stint is going on: only then may Acquire, Release and Propose be called.
func (t *Table) Leading() bool { return t.leading }

// Addresses is what the latest start entry said of where the leader takes clients.
func (t *Table) Addresses() string { return t.rep.addresses }

// NextToken is the next token that will be issued.
func (t *Table) NextToken() Token { return t.rep.next }

// GraceLeft is how long no grant is made yet; 0 outside a grace. A table that does not lead knows it by the lease clock
// alone, which may be a second behind.
func (t *Table) GraceLeft(now time.Duration) time.Duration {
	if !t.leading {
		return max(0, t.rep.graceEnds-t.rep.clock)
	}
	return max(0, t.graceOver-now)
}

// Counts are the table's counters and what is in it now.
func (t *Table) Counts() Counts {
	c := t.counts
	c.Keys, c.Held, c.Waiters = t.index.count, t.held, t.waiting
	c.UndecidedAcquires, c.UndecidedReleases = t.undecidedAcquires, t.undecidedReleases
	c.RecordsInFlight = len(t.pending)
	c.KeysGateClosed, c.WaitersGateClosed = t.keysGate.Closed(), t.waitersGate.Closed()
	return c
}

// Waits is how long granted acquires had waited, of those that had queued; Holds how long tokens held, from grant to end as this leader saw them.
func (t *Table) Waits() Histogram { return t.waited }

// Holds is how long tokens held; see Waits.
func (t *Table) Holds() Histogram { return t.kept }

// keyOf finds or makes the key of that name (behind its length byte).
func (t *Table) keyOf(name []byte) *key {
	hash := t.index.hash(name)
	if k := t.index.find(name, hash); k != nil {
		return k
	}
	return t.newKey(name, hash)
}

func (t *Table) newKey(name []byte, hash uint64) *key {
	k := t.keys.get()
	k.name = append(k.name[:0], name...)
	k.hash = hash
	t.index.insert(k, hash)
	t.keysGate.Use(t.index.count)
	return k
}

// touch lists k: settle looks at it before the table's caller goes on.
func (t *Table) touch(k *key) {
	if !k.touched {
		k.touched = true
		t.touched = append(t.touched, k)
	}
}

// reap forgets the keys listed that nobody holds and nobody waits for.
func (t *Table) reap() {
	for _, k := range t.touched {
		if !k.touched { // listed twice
			continue
		}
		k.touched = false
		if k.holder == nil && k.reserved == nil && k.head == nil {
			t.index.remove(k, k.hash)
			*k = key{name: k.name[:0]}
			t.keys.put(k)
		}
	}
	t.keysGate.Use(t.index.count)
	t.touched = t.touched[:0]
	if cap(t.touched) > listKept {
		t.touched = nil
	}
}

// forget gives the grants that were dropped back to the pool.
func (t *Table) forget() {
	for i, g := range t.dropped {
		t.leases.cancel(g)
		*g = grant{more: g.more[:0], set: g.set[:0]}
		t.grants.put(g)
		t.dropped[i] = nil
	}
	t.dropped = t.dropped[:0]
	if cap(t.dropped) > listKept {
		t.dropped = nil
	}
}

// pool keeps a bounded number of values for the next use: enough for what comes and goes within a drain of the rings, so
// that a steady load allocates nothing, and few enough that a million keys leave nothing behind.
type pool[T any] struct{ free []*T }

const (
	poolKept = 1024
	listKept = 4096 // longest scratch list that is kept
)

func (p *pool[T]) get() *T {
	n := len(p.free) - 1
	if n < 0 {
		return new(T)
	}
	v := p.free[n]
	p.free[n] = nil
	p.free = p.free[:n]
	return v
}

func (p *pool[T]) put(v *T) {
	if len(p.free) < poolKept {
		p.free = append(p.free, v)
	}
}

// session is what the table knows of a client's connection during a stint.
type session struct {
	generation uint32 // 0: slot never used
	ended      bool
	leaving    bool   // Left is owed once undecided is 0
	undecided  int32  // commands of it that hang on a record not yet resolved
	claims     *claim // its waiters
	lines      []*line
	held       int  // answers in lines
	overrun    bool // too many were: no more are held
}

// sessionOf is the state of a session, made if it is new; nil if its slot has gone to a later one.
func (t *Table) sessionOf(s Session) *session {
	loop, at, generation := int(s>>56), int(s>>32)&(1<<24-1), uint32(s)
	for loop >= len(t.sessions) {
		t.sessions = append(t.sessions, nil)
	}
	if at >= len(t.sessions[loop]) {
		t.sessions[loop] = append(t.sessions[loop], make([]session, at+1-len(t.sessions[loop]))...)
	}
	x := &t.sessions[loop][at]
	if x.generation != generation {
		if int32(generation-x.generation) < 0 && x.generation != 0 {
			return nil
		}
		*x = session{generation: generation}
	}
	return x
}

// over says whether a session has ended; one from before this stint has.
func (t *Table) over(s Session) bool {
	loop, at := int(s>>56), int(s>>32)&(1<<24-1)
	if s == 0 || loop >= len(t.sessions) || at >= len(t.sessions[loop]) {
		return true
	}
	x := &t.sessions[loop][at]
	return x.generation != uint32(s) || x.ended
}

// undecided counts a command of a session that hangs on a record, or (n -1) no longer does.
func (t *Table) undecided(s Session, n int32) {
	if x := t.sessionOf(s); x != nil {
		x.undecided += n
	}
}

// answer tells one session what became of its command.
func (t *Table) answer(kind Kind, s Session, flags Flags, id uint64, token Token, first []byte) {
	r := &t.out
	r.Session, r.Kind, r.Flags, r.ID, r.Token, r.Key = s, kind, flags, id, token, first
	t.sink.Reply(r)
}

// Deadline is when Tick or Propose next has something to do, ok false if never.
func (t *Table) Deadline() (at time.Duration, ok bool) {
	if !t.leading {
		return 0, false
	}
	at = math.MaxInt64
	if next := t.waits.next(); next < never {
		at = time.Duration(next) * time.Millisecond
	}
	if next := t.leases.next(); next < never && !t.refused {
		at = min(at, time.Duration(next)*time.Millisecond)
	}
	if t.clockRuns() && !t.refused && len(t.pending) < t.limits.MaxRecords {
		at = min(at, t.stamp+t.clockStep())
	}
	return at, at < math.MaxInt64
}

// Tick fires what is due: waits that are over, leases that have ended.
func (t *Table) Tick(now time.Duration) {
	if !t.leading {
		return
	}
	to := int64(now / time.Millisecond)
	for {
		wait, lease := t.waits.next(), t.leases.next()
		if t.refused {
			lease = never
		}
		next := min(wait, lease)
		if next > to {
			break
		}
		if wait == next {
			t.waits.turn(next)
			for w, ok := t.waits.due(); ok; w, ok = t.waits.due() {
				t.timeOut(w)
			}
			t.settle()
		}
		if lease == next {
			t.leases.turn(next)
			for g, ok := t.leases.due(); ok; g, ok = t.leases.due() {
				t.expire(g)
			}
		}
	}
	t.waits.tick = max(t.waits.tick, to)
	if !t.refused {
		t.leases.tick = max(t.leases.tick, to)
	}
	t.settle()
}

// settle grants what the keys touched let through, forgets those that are idle, and answers sessions that wait to leave.
// While refused records are being gathered nothing is granted: resume looks at every key touched till then.
func (t *Table) settle() {
	t.goOn()
	if !t.refused && len(t.leavers) > 0 {
		t.leavers = slices.DeleteFunc(t.leavers, t.left)
	}
}

// goOn is settle without the answers to sessions that wait to leave: between commands that are decided again, those still
// to come are not counted as undecided.
func (t *Table) goOn() {
	if t.refused || len(t.touched) == 0 {
		return
	}
	if t.leading {
		if ready := t.ready(); len(ready) > 0 {
			t.step(nil, ByRelease, ready)
		}
	}
	t.reap()
}

// left answers a session that wanted to leave, if nothing of it is undecided.
func (t *Table) left(s Session) bool {
	x := t.sessionOf(s)
	if x == nil || !x.leaving {
		return true
	}
	if x.undecided > 0 {
		return false
	}
	x.leaving = false
	t.answer(Left, s, 0, 0, 0, nil)
	return true
}

// Undecided is how many acquires and releases hang on records not yet resolved.
func (t *Table) Undecided() (acquires, releases int) {
	return t.undecidedAcquires, t.undecidedReleases
}
