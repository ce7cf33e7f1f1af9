package server

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/ticketing-go/ticketing/codec"
	"github.com/ticketing-go/ticketing/eventloop"
	"github.com/ticketing-go/ticketing/locktable"
)

// drainMost is how many requests of one loop are taken before the other loops, commits and deadlines have their turn.
const drainMost = 256

// Records: one holds a drain at most, and eight may be on their way at once; more were measured to gain nothing.
const (
	maxRecords = 8
	maxEntries = 256
)

// kinds translates the table's replies. What the table calls a flag, a wire calls the same.
var kinds = [...]codec.Kind{
	locktable.Granted: codec.Granted, locktable.TimedOut: codec.TimedOut, locktable.Busy: codec.Busy,
	locktable.Released: codec.Released, locktable.NotHeld: codec.NotHeld, locktable.Mismatched: codec.Mismatched,
	locktable.LostQueued: codec.LostQueued, locktable.LostProposed: codec.LostProposed,
	locktable.StopQueued: codec.StopQueued, locktable.Left: codec.Left,
}

// The flags are the same bits: each line breaks the build if they are not.
var (
	_ = [1]struct{}{}[uint8(codec.AsSet)^uint8(locktable.AsSet)]
	_ = [1]struct{}{}[uint8(codec.Idempotent)^uint8(locktable.Idempotent)]
	_ = [1]struct{}{}[uint8(codec.ByKey)^uint8(locktable.ByKey)]
	_ = [1]struct{}{}[uint8(codec.InOrder)^uint8(locktable.InOrder)]
)

// committer agrees on a record. propose is called on the apply goroutine and never blocks; sooner or later the record
// is committed or refused there, or the stint ends.
type committer interface {
	propose(now time.Duration, r *locktable.Record)
}

// applier owns the lock table: whoever has its turn, and nobody else, touches the table and all that stands under turn.
// run is its goroutine and has the turn for as long as there is work. A loop that has handed over requests while nobody
// has the turn takes it for one round: then neither the apply goroutine nor the loop has to be woken, which is most of
// what a lone request costs. What is left after that round, and everything that comes from elsewhere (do), is run's.
type applier struct {
	turn sync.Mutex // never waited for on a loop

	host   *host
	kick   func(loop int)
	table  *lockTable
	now    func() time.Duration // the time since the applier was made, on the monotonic clock
	commit committer

	// What the node is, as its requests are answered. Read and written on the apply goroutine.
	stopping bool
	leader   *codec.Leader // who leads, if not this node; nil: nobody known
	standing standing

	entries, records       uint64              // proposed
	turnedAway             uint64              // acquires that the gate turned away
	drained                locktable.Histogram // requests a drain, counted as microseconds
	busy                   time.Duration
	decidedA, decidedR     int // commands decided since the gates were last told
	undecidedA, undecidedR int

	jobs struct {
		sync.Mutex
		list []func()
		some atomic.Bool // list is not empty
	}
	running bool          // run was started; of whoever starts and stops
	armed   atomic.Int64  // when run's timer wakes it, asleepFor if none runs
	quit    chan struct{} // closed to end run
	ended   chan struct{} // closed when run has returned
}

// standing is what a node answers requests with when its table does not lead.
type standing uint8

const (
	follower standing = iota // Moved, or no leader known
	inactive                 // a learner, unformed, starting: NotActive
)

func newApplier(h *host, limits locktable.Limits, first locktable.Token) *applier {
	origin := time.Now()
	a := &applier{host: h, now: func() time.Duration { return time.Since(origin) }, quit: make(chan struct{}), ended: make(chan struct{})}
	a.table = newTable(limits, first, a)
	return a
}

// asleepFor is the longest sleep: what armed says when no timer runs.
const asleepFor = time.Duration(1<<63 - 1)

// run decides until quit is closed. It never blocks but to sleep, and for the one round of a loop.
func (a *applier) run() {
	defer close(a.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		a.armed.Store(int64(asleepFor)) // before the turn: a loop that has it now rings if its round leaves a deadline
		a.turn.Lock()
		from := a.now()
		for a.round() {
		}
		a.busy += a.now() - from
		a.turn.Unlock()
		a.host.bell.Arm()
		if a.turn.TryLock() {
			did := a.round()
			due, ok := a.table.Deadline()
			if ok && !did {
				a.armed.Store(int64(due))
				timer.Reset(due - a.now())
			}
			a.turn.Unlock()
			// Whoever found the turn taken has gone on without a word: who gives it back looks once more.
			if did || a.waiting() {
				a.host.bell.Disarm(false)
				continue
			}
		}
		rung := false
		select {
		case <-a.host.bell.C():
			rung = true
		case <-timer.C:
		case <-a.quit:
			return
		}
		a.host.bell.Disarm(rung)
	}
}

// turnsMost is how many rounds a loop does in a row for others before it leaves them to the apply goroutine: it has
// connections of its own to serve.
const turnsMost = 3

// serve is called on a loop that has just handed over requests: it has them decided here if nobody is at it. If somebody
// is, they will be seen: whoever gives the turn back looks once more after it.
func (a *applier) serve() {
	for n := 0; a.turn.TryLock(); n++ {
		from := a.now()
		a.round()
		due, ok := a.table.Deadline()
		a.busy += a.now() - from
		a.turn.Unlock()
		if ok && int64(due) < a.armed.Load() || a.host.spilled() || n == turnsMost {
			a.host.bell.Ring()
			return
		}
		if !a.waiting() {
			return
		}
	}
}

// waiting says whether requests or jobs wait that nobody may have seen: a bell that was rung for them while the apply
// goroutine was awake has been heard by nobody, if it then found the turn taken and went to sleep.
func (a *applier) waiting() bool { return a.jobs.some.Load() || a.host.waiting() }

// round takes what there is from everywhere once, and says whether there was anything.
func (a *applier) round() bool {
	did := a.runJobs()
	for _, l := range a.host.lanes {
		n := a.drain(l)
		if n > 0 {
			did = true
			a.drained.Observe(time.Duration(n) * time.Microsecond)
			a.settle(a.now())
		}
	}
	if a.table.Leading() {
		now := a.now()
		a.table.Tick(now)
		a.settle(now)
	}
	a.publish()
	return did
}

// settle proposes what has been decided and tells the gates.
func (a *applier) settle(now time.Duration) {
	for r := a.table.Propose(now); r != nil; r = a.table.Propose(now) {
		a.records++
		a.entries += uint64(len(r.Entries))
		a.commit.propose(now, r)
	}
	undecidedA, undecidedR := a.table.Undecided()
	leftA := a.decidedA - (undecidedA - a.undecidedA)
	leftR := a.decidedR - (undecidedR - a.undecidedR)
	a.decidedA, a.decidedR, a.undecidedA, a.undecidedR = 0, 0, undecidedA, undecidedR
	a.host.gates.leave(leftA, leftR)
}

// publish shows the loops their replies, and those that found no room that there may be some.
func (a *applier) publish() {
	for i, l := range a.host.lanes {
		l.unspill()
		if l.replies.Publish() {
			a.kick(i)
		}
		if !l.spilled.Load() && l.starved.Load() && l.starved.Swap(false) {
			a.kick(i)
		}
	}
}

// drain takes requests of one loop and decides them.
func (a *applier) drain(l *lane) int {
	// One look at the clock a drain. What is taken was handed over before it, so that no wait or lease counts from too early:
	// what the loop hands over meanwhile may have been read long after it, if this goroutine was held up.
	most := min(l.requests.Len(), drainMost)
	if most == 0 {
		return 0
	}
	now := a.now()
	for range most {
		r := l.requests.Next()
		a.take(now, r)
		if r.set != nil {
			bytebufferpool.Put(r.set)
			r.set = nil
		}
	}
	l.requests.Release()
	return most
}

func (a *applier) take(now time.Duration, r *request) {
	switch r.kind {
	case anAcquire:
		a.decidedA++
	case aRelease:
		a.decidedR++
	case aLeave:
		a.table.Leave(now, locktable.Session(r.session), true)
		return
	case aDisconnect:
		a.table.Leave(now, locktable.Session(r.session), false)
		return
	case anUndelivered:
		a.table.Undelivered(now, locktable.Session(r.session), r.key[1:r.size], locktable.Token(r.token))
		return
	case aReject:
		a.answer(r, codec.Rejected)
		return
	}
	switch {
	case a.stopping:
		a.answer(r, codec.NotActive)
	case !a.table.Leading() && a.standing == inactive:
		a.answer(r, codec.NotActive)
	case !a.table.Leading():
		a.answer(r, codec.Moved)
	case r.kind == aBusyAcquire:
		a.turnedAway++
		ask := r.acquire()
		a.table.TurnAway(now, &ask)
	case r.kind == anAcquire:
		ask := r.acquire()
		a.table.Acquire(now, &ask)
	default:
		a.table.Release(now, &locktable.Release{
			Session: locktable.Session(r.session), ID: r.id, Token: locktable.Token(r.token), Keys: r.keys(),
			Flags: locktable.Flags(r.flags),
		})
	}
}

// acquire is the request as the table takes it, valid as long as the slot is.
func (r *request) acquire() locktable.Acquire {
	return locktable.Acquire{
		Session: locktable.Session(r.session), ID: r.id, Keys: r.keys(), Flags: locktable.Flags(r.flags),
		Wait: r.wait, Lease: r.lease,
	}
}

// answer replies to a request that the table does not see.
func (a *applier) answer(r *request, kind codec.Kind) {
	s := a.host.lanes[r.session.Loop()].slot()
	s.session = r.session
	s.Reply = codec.Reply{Kind: kind, Flags: r.flags, Reason: r.reason, ID: r.id, Token: r.token}
	if kind == codec.Moved {
		s.Leader = a.leader
	}
	keys := r.keys()
	s.size = 0
	if len(keys) > 0 {
		s.size = uint8(copy(s.key[:], keys.First()))
	}
}

// Reply is the table's sink.
func (a *applier) Reply(r *locktable.Reply) {
	session := eventloop.SessionID(r.Session)
	s := a.host.lanes[session.Loop()].slot()
	s.session = session
	s.Kind, s.Flags, s.ID, s.Token = kinds[r.Kind], codec.Flags(r.Flags), r.ID, uint64(r.Token)
	s.Reason, s.Leader = codec.NoReason, nil
	s.size = uint8(copy(s.key[:], r.Key))
	if r.Kind == locktable.LostQueued || r.Kind == locktable.LostProposed {
		s.Leader = a.leader
	}
}

// call runs f with the turn, on this goroutine if nobody has it and on the apply goroutine otherwise, waits until it has
// run and has what follows from it decided. Like do it says whether f has run. It must not be called with the turn.
func (a *applier) call(f func()) bool {
	if !a.turn.TryLock() {
		return a.do(f)
	}
	from := a.now()
	f()
	a.settle(a.now())
	a.publish()
	due, ok := a.table.Deadline()
	a.busy += a.now() - from
	a.turn.Unlock()
	if ok && int64(due) < a.armed.Load() || a.waiting() || a.host.spilled() {
		a.host.bell.Ring()
	}
	return true
}

// do runs f on the apply goroutine and waits until it has run. It returns false, without f having run, if the goroutine
// has ended. It must not be called on the apply goroutine.
func (a *applier) do(f func()) bool {
	done := make(chan struct{})
	a.post(func() {
		defer close(done)
		f()
	})
	select {
	case <-done:
		return true
	case <-a.ended:
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
}

// post has f run on the apply goroutine before long.
func (a *applier) post(f func()) {
	a.jobs.Lock()
	a.jobs.list = append(a.jobs.list, f)
	a.jobs.some.Store(true)
	a.jobs.Unlock()
	a.host.bell.Ring()
}

func (a *applier) runJobs() bool {
	if !a.jobs.some.Load() {
		return false
	}
	a.jobs.Lock()
	list := a.jobs.list
	a.jobs.list = nil
	a.jobs.some.Store(false)
	a.jobs.Unlock()
	for _, f := range list {
		f()
	}
	a.settle(a.now())
	return true
}

// alone commits every record at once.
type alone struct{ table *lockTable }

// propose is committer's.
func (c alone) propose(now time.Duration, r *locktable.Record) { c.table.Commit(now, r) }
