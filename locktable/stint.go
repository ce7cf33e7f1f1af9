package locktable

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// stint is what a serving node has besides the replicated part: made when its start entry is applied, forgotten when
// leadership is lost.
type stint struct {
	me                Proposer
	leading, starting bool
	stopped           bool // Stop was called: nothing queues any more

	order uint64 // of the command that came last
	seq   uint64 // of the record proposed last

	// The lease clock as this leader drives it. An advance is counted from stamp, when the last record was proposed,
	// whatever became of it: time that is told twice would end leases early.
	born, stamp time.Duration
	graceOver   time.Duration

	waits  wheel[*waiter]
	leases wheel[*grant]

	waiting     int  // waiting acquires, each once
	queued      *key // list of keys with a queue
	keysGate    Gate
	waitersGate Gate

	sessions [][]session // by loop and slot
	leavers  []Session   // sessions that are owed a Left

	owners    map[ownerKey]*waiter // waiters of wire 0.3, which their owner and key name
	affirming map[affirmKey][]*command

	batch   []*flight // decided and not yet proposed; the last one takes more
	pending []*flight // proposed and not resolved, in order
	spare   []*flight
	asked   int // grants asked for in batch and pending

	// refused: a record was refused. Nothing is proposed until all in flight are resolved; then all of undone, and the
	// commands that came meanwhile, are decided again.
	refused bool
	undone  []*flight
	later   []*command

	revokes []revoke

	undecidedAcquires, undecidedReleases int

	readyList []*waiter
	named     [maxSetKeys]named
	nameBuf   [1 + maxKeyBytes]byte
	out       Reply
}

// place is where a waiter stands in the queue of one of its keys.
type place struct {
	key        *key
	waiter     *waiter
	prev, next *place
}

// claim ties a waiter to a session that sent it.
type claim struct {
	session    Session
	waiter     *waiter
	prev, next *claim
}

// waiter is an acquire that waits, or whose grant is in flight. With one key and one session it is 128 bytes.
type waiter struct {
	first   place
	sender  claim
	tm      timer[*waiter]
	id      uint64
	order   uint64
	arrived time.Duration
	lease   uint32 // milliseconds
	flags   Flags
	state   uint8
	fresh   bool  // never queued: its acquire is undecided while its grant is in flight
	copies  bool  // rare.claims may hold more copies
	rare    *rare // nil for a single key and a single session
}

// rare is what few waiters have.
type rare struct {
	places []place  // of the second and further keys of a set
	claims []*claim // of further copies of the same acquire (wire 0.3)
	joined int      // copies that came since its grant is in flight: undecided acquires
}

const (
	queued   uint8 = iota // in the queues of its keys
	marked                // found to be grantable, in Table.readyList
	reserved              // its grant is in flight
)

func (w *waiter) timer() *timer[*waiter] { return &w.tm }

// hold is what a stint knows of a grant.
type hold struct {
	tm       timer[*grant]
	granted  time.Duration // local time
	session  Session       // with ByKey: whom it was granted to
	ending   bool          // its end is in batch or in flight
	copies   int32         // answers not yet known to be undelivered; forever: never revoked
	releases []*command    // releases that wait for the end in flight
}

const forever = math.MaxInt32

func (g *grant) timer() *timer[*grant] { return &g.tm }

type revoke struct {
	grant *grant
	token Token
}

// flight is a record with what hangs on each of its entries.
type flight struct {
	record  Record
	items   []item    // one an entry
	waiters []*waiter // one an ask
}

// item is whom an entry concerns.
type item struct {
	end        *grant  // Step: the grant that ends
	release    release // Step: who released it; session 0: nobody
	*waitersOf         // nil for a Step
}

// waitersOf is who waits for a Barrier or a Reaffirm.
type waitersOf struct {
	commands []*command // Barrier: to be decided again
	affirm   affirmKey  // Reaffirm
}

// wait is it.waitersOf, empty for a Step.
func (it *item) wait() waitersOf {
	if it.waitersOf == nil {
		return waitersOf{}
	}
	return *it.waitersOf
}

type release struct {
	session Session
	id      uint64
	order   uint64
	flags   Flags
}

// command is an acquire or a release that cannot be decided yet.
type command struct {
	kind   commandKind
	barred bool // a barrier has been applied since it came: what is not known now never will be
	// turnedAway is an acquire whose answer is known, but not its turn.
	turnedAway bool

	order   uint64
	arrived time.Duration // of an acquire
	acquire Acquire
	release Release
	keys    KeySet // its own copy, which acquire and release use
}

type commandKind uint8

const (
	anAcquire commandKind = iota
	aRelease
)

func acquireCommand(arrived time.Duration, a *Acquire, order uint64) *command {
	c := &command{kind: anAcquire, arrived: arrived, order: order, acquire: *a, keys: slices.Clone(a.Keys)}
	c.acquire.Keys = c.keys
	return c
}

func releaseCommand(r *Release, order uint64) *command {
	c := &command{kind: aRelease, order: order, release: *r, keys: slices.Clone(r.Keys)}
	c.release.Keys = c.keys
	return c
}

// Begin ends the former stint, if any, and returns the record that starts a new one: it is to be proposed, and the stint
// begins when Commit sees it. by must never have been used before. If the record is refused, call Begin again.
func (t *Table) Begin(now time.Duration, by Proposer, terms StartTerms) *Record {
	t.Lose(now)
	t.me, t.starting = by, true
	return &Record{By: by, Entries: []Entry{{Kind: Start}}, Start: terms}
}

// begin is the moment at which the own start entry has been applied.
func (t *Table) begin(now time.Duration) {
	t.starting, t.leading = false, true
	t.born, t.stamp = now, now
	t.waits.tick = int64(now / time.Millisecond)
	t.leases.tick = t.waits.tick
	t.graceOver = now + t.rep.graceEnds - t.rep.clock
	t.index.each(func(k *key) { // order does not matter: each lease has its own deadline
		if g := k.holder; g != nil && g.key == k {
			g.hold = hold{granted: now, copies: forever}
			t.arm(g, now)
		}
	})
}

// arm schedules the end of g's lease by the lease clock, longer by what two clocks may differ: 500 ppm each.
func (t *Table) arm(g *grant, now time.Duration) {
	left := g.at + g.lease + g.lease/1000 - t.rep.clock
	if planting && planted(EarlyExpiry, uint64(g.token)) {
		left = g.lease / 2
	}
	t.leases.schedule(g, millisUp(now+max(left, 0)))
}

// clockRuns says whether the lease clock must be told: while leases run, or a grace.
func (t *Table) clockRuns() bool {
	return t.rep.grants > 0 || t.rep.clock < t.rep.graceEnds
}

// clockStep is how long the clock may go untold: as long as the stint was old at its last record, so that even leaders
// who live 80 ms move it; 50 ms at least, a second at most.
func (t *Table) clockStep() time.Duration {
	return min(max(t.stamp-t.born, 50*time.Millisecond), time.Second)
}

// Propose returns the next record to be agreed on, or nil if there is none now. It stays the table's and is not changed
// until Commit or Refuse has been called for it; records must be proposed in the order in which they are returned.
func (t *Table) Propose(now time.Duration) *Record {
	if !t.leading || t.refused || len(t.pending) >= t.limits.MaxRecords {
		return nil
	}
	t.revoke()
	var f *flight
	switch {
	case len(t.batch) > 0:
		f = t.batch[0]
		t.batch = slices.Delete(t.batch, 0, 1)
	case t.clockRuns() && now-t.stamp >= t.clockStep():
		f = t.flight()
	default:
		return nil
	}
	t.seq++
	f.record.By, f.record.Seq, f.record.Advance = t.me, t.seq, now-t.stamp
	// The fault leaves records that tell nothing but the time alone: one would follow another for ever.
	if !planting || !planted(ClockToldTwice, faultEvery-1) || len(f.record.Entries) == 0 {
		t.stamp = now
	}
	t.pending = append(t.pending, f)
	if planting && planted(AnswerBeforeCommit, faultEvery-1) {
		t.answerEarly(f)
	}
	return &f.record
}

// revoke ends the grants whose answers turned out to be undelivered.
func (t *Table) revoke() {
	if len(t.revokes) == 0 {
		return
	}
	for _, r := range t.revokes {
		if r.grant.token == r.token && !r.grant.ending && r.grant.copies <= 0 {
			t.end(r.grant, ByRevoke)
		}
	}
	t.revokes = t.revokes[:0]
	t.settle()
}

// flight takes an empty one.
func (t *Table) flight() *flight {
	if n := len(t.spare) - 1; n >= 0 {
		f := t.spare[n]
		t.spare = t.spare[:n]
		return f
	}
	return &flight{}
}

// land gives a resolved one back.
func (t *Table) land(f *flight) {
	t.asked -= len(f.waiters)
	// What the slices hold is overwritten when they are used again; a few spare flights keep it alive till then.
	f.record = Record{Entries: f.record.Entries[:0], Asks: f.record.Asks[:0]}
	f.items, f.waiters = f.items[:0], f.waiters[:0]
	if len(t.spare) <= t.limits.MaxRecords {
		t.spare = append(t.spare, f)
	}
}

// open is the flight that takes the next entry.
func (t *Table) open() *flight {
	if n := len(t.batch); n > 0 && len(t.batch[n-1].items) < t.limits.MaxEntries {
		return t.batch[n-1]
	}
	f := t.flight()
	t.batch = append(t.batch, f)
	return f
}

// step puts an entry into the batch: the end of g (nil: of nothing) and the grants of all waiters that can then go on.
func (t *Table) step(g *grant, why EndReason, ready []*waiter) *item {
	f := t.open()
	f.record.Entries = append(f.record.Entries, Entry{Kind: Step, Why: why, Asks: len(ready)})
	f.items = append(f.items, item{end: g})
	if g != nil {
		e := &f.record.Entries[len(f.record.Entries)-1]
		e.End, e.Keys, e.grant = g.token, g.keys(), g
	}
	for _, w := range ready {
		t.reserve(w)
		f.waiters = append(f.waiters, w)
		f.record.Asks = append(f.record.Asks, t.ask(w))
	}
	t.asked += len(ready)
	return &f.items[len(f.items)-1]
}

func (t *Table) ask(w *waiter) Ask {
	a := Ask{Lease: time.Duration(w.lease) * time.Millisecond, Flags: w.flags & (Idempotent | ByKey)}
	if w.flags&Idempotent != 0 {
		a.Owner = w.id
	}
	if w.rare == nil || len(w.rare.places) == 0 {
		a.Keys, a.key = w.first.key.name, w.first.key
		return a
	}
	for p := range w.places {
		a.Keys = append(a.Keys, p.key.name...)
	}
	return a
}

// end decides that g ends, and grants what follows from it in the same entry.
func (t *Table) end(g *grant, why EndReason) *item {
	g.ending = true
	t.touch(g.key)
	for _, k := range g.more {
		t.touch(k)
	}
	return t.step(g, why, t.ready())
}

// expire ends g, whose lease is over.
func (t *Table) expire(g *grant) {
	if !g.ending {
		t.end(g, ByExpiry)
	}
}

// free says whether nobody will hold k once everything in flight has committed.
func (k *key) free() bool { return k.reserved == nil && (k.holder == nil || k.holder.ending) }

// ready lists the waiters that the keys touched let through, in order of arrival. Two of them never share a key. If the
// token counter has not enough left for all, the youngest are turned away, and whoever stood behind them.
func (t *Table) ready() []*waiter {
	list := t.readyList[:0]
	if planting && planted(LostWaiter, t.order) {
		return list
	}
	for from := 0; ; {
		for ; from < len(t.touched); from++ {
			if p := t.touched[from].head; p != nil && p.waiter.state == queued && p.waiter.grantable() {
				p.waiter.state = marked
				list = append(list, p.waiter)
			}
		}
		if len(list) > 1 {
			slices.SortFunc(list, func(a, b *waiter) int { return cmp.Compare(a.order, b.order) })
		}
		if len(list) == 0 || !t.spent(len(list)-1) {
			break
		}
		last := len(list) - 1
		t.counts.BusySpent++
		for p := range list[last].places {
			p.key.touched = false // listed once more: the next in its queue is looked at
		}
		t.dismiss(list[last], Busy)
		list = list[:last]
	}
	t.readyList = list
	return list
}

// grantable says whether w is at the head of all its queues and all its keys are free.
func (w *waiter) grantable() bool {
	for p := range w.places {
		if p.key.head != p || !p.key.free() {
			return false
		}
	}
	return true
}

// spent says whether the token counter has nothing left for one grant more than those asked for and extra others.
func (t *Table) spent(extra int) bool {
	return uint64(LastToken-t.rep.next)+1 <= uint64(t.asked+extra)
}

// places are w's places, one a key, in the order of the keys.
func (w *waiter) places(yield func(*place) bool) {
	if !yield(&w.first) || w.rare == nil {
		return
	}
	for i := range w.rare.places {
		if !yield(&w.rare.places[i]) {
			return
		}
	}
}

// reserve takes a grantable waiter out of its queues and keeps its keys for it.
func (t *Table) reserve(w *waiter) {
	if !w.fresh {
		t.unqueue(w)
	}
	w.state = reserved
	for p := range w.places {
		p.key.reserved = w
	}
	for c := range w.claims {
		t.undecided(c.session, 1)
	}
	if w.fresh {
		t.undecidedAcquires++
	}
}
