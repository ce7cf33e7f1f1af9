package session

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ticketing-go/ticketing/bench/history"
)

// Place is where a member of the service takes clients.
type Place struct {
	Addr string
	Node func() int32 // names the process that is there now
}

// Route knows the places and which of them is said to lead. Safe for concurrent use.
type Route struct {
	Places []Place
	leader atomic.Int32 // index
}

// Told takes a hint; one that is not among the places is ignored (CLIENTS.md rule 22).
func (r *Route) Told(addr string) {
	for i := range r.Places {
		if r.Places[i].Addr == addr {
			r.leader.Store(int32(i))
		}
	}
}

// Leader is the place that is said to lead.
func (r *Route) Leader() int { return int(r.leader.Load()) }

// next moves on from a place that was of no use, unless somebody has already.
func (r *Route) next(from int) {
	r.leader.CompareAndSwap(int32(from), int32((from+1)%len(r.Places)))
}

// Load says what a crew does.
type Load struct {
	Prefix  string        // of all keys
	Keys    int           // keys that are shared by all workers, besides the hot one
	Seats   int           // sessions
	Workers int           // workers a seat, pipelined on its session
	Pause   time.Duration // longest pause between two acquires of a worker
	Hot     bool          // one worker in four uses the hot key alone
	Lapse   int           // keys on which every lease runs out, with a waiter behind it
	Seed    uint64
}

// HotKey is the name of the hot key.
func (l Load) HotKey() string { return l.Prefix + "/hot" }

const (
	beat    = 16 * time.Millisecond // answers are slow from here on
	redial  = 20 * time.Millisecond
	insist  = 5 * time.Second        // how long after its lease a grant is still given back
	abandon = 200 * time.Millisecond // how long a session is kept after another leader was named
)

// Crew is the load of a drill: workers who acquire and release as clients do. Some wait and some do not, most release,
// some let the lease run out, and some release what is not theirs.
type Crew struct {
	route   *Route
	dialer  *Dialer
	load    Load
	stop    chan struct{} // ends the work
	working sync.WaitGroup
	quiet   chan struct{} // closed when all work has ended: ends the watching
	watch   sync.WaitGroup
	probes  atomic.Uint64
}

// NewCrew starts a crew, whose sessions are made by d. It works until Stop.
func NewCrew(route *Route, d *Dialer, load Load) *Crew {
	c := &Crew{route: route, dialer: d, load: load, stop: make(chan struct{}), quiet: make(chan struct{})}
	for i := range route.Places {
		c.run(func() { c.scout(i) })
	}
	for i := range load.Seats {
		s := &seat{crew: c, loyal: i%2 == 1}
		for w := range load.Workers {
			n := uint64(i*load.Workers + w)
			w := &worker{seat: s, rnd: rand.New(rand.NewPCG(load.Seed, n)), hot: load.Hot && n%4 == 0}
			c.run(w.work)
		}
	}
	if load.Lapse > 0 {
		c.run(func() { c.lapse(&seat{crew: c}) })
	}
	c.watch.Add(2)
	// Ends when quiet is closed, by Stop.
	go func() { defer c.watch.Done(); c.metronome(&seat{crew: c}) }()
	// Ends when quiet is closed, by Stop.
	go func() { defer c.watch.Done(); d.Log.Watch(c.quiet) }()
	return c
}

func (c *Crew) run(what func()) {
	c.working.Add(1)
	// Ends soon after stop is closed: everything that waits, waits for that too, or for a session with a patience.
	go func() {
		defer c.working.Done()
		what()
	}()
}

// Stop ends the work and returns when nothing records any more.
func (c *Crew) Stop() {
	close(c.stop)
	c.working.Wait()
	close(c.quiet)
	c.watch.Wait()
}

// sleep returns false when the crew is to stop.
func (c *Crew) sleep(d time.Duration) bool { return sleep(d, c.stop) }

// sleep returns false when stop is closed.
func sleep(d time.Duration, stop <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-stop:
		return false
	case <-t.C:
		return true
	}
}

// scout keeps a session with a place that asks for nothing: it hears who leads.
func (c *Crew) scout(i int) {
	for c.sleep(redial) {
		s, err := c.dialer.Dial(c.route.Places[i].Addr, c.route.Places[i].Node())
		if err != nil {
			continue
		}
		select {
		case <-c.stop:
		case <-s.Gone():
		}
		s.Close()
	}
}

// seat is a session with whoever leads, made anew when it ends.
type seat struct {
	crew  *Crew
	loyal bool // does not leave a leader that is said to be deposed: sees what it answers when it wakes up

	mu    sync.Mutex
	s     *Session
	place int
}

// session returns a live session, or nil when none can be had now.
func (t *seat) session() *Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	route := t.crew.route
	if t.s != nil {
		select {
		case <-t.s.Gone():
			t.s = nil
		default:
			if t.place == route.Leader() || t.loyal {
				return t.s
			}
			old := t.s
			time.AfterFunc(abandon, old.Close)
			t.s = nil
		}
	}
	t.place = route.Leader()
	p := route.Places[t.place]
	s, err := t.crew.dialer.Dial(p.Addr, p.Node())
	if err != nil {
		route.next(t.place)
		return nil
	}
	t.s = s
	return s
}

func (t *seat) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.s != nil {
		t.s.Close()
	}
}

// refused moves on from a session whose node does not lead and could not say who does.
func (t *seat) refused(s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.s == s {
		t.crew.route.next(t.place)
	}
}

// metronome acquires and releases a key of its own, one request after the other, and records as a stall when an answer
// is slow: then the whole service did not run, for want of a core perhaps, and what is late on another key says nothing
// about that key.
func (c *Crew) metronome(t *seat) {
	defer t.close()
	log := c.dialer.Log
	n := 0
	answer := func(call *Call, err error) history.Outcome {
		if err != nil {
			return history.Unknown
		}
		<-call.Done
		if took := call.Op.Return - call.Op.Call; call.Op.Return != history.Never && took > beat {
			log.Stall(call.Op.Call, call.Op.Return)
		}
		return call.Op.Outcome
	}
	for sleep(beat/4, c.quiet) {
		s := t.session()
		if s == nil {
			continue
		}
		call, err := s.Acquire(fmt.Sprintf("%s/metronome/%d", c.load.Prefix, n), 0, time.Second, false)
		switch answer(call, err) {
		case history.Granted:
			if answer(s.Release(call.Op.Key, call.Op.Token)) != history.Released {
				n++
			}
		case history.Refused:
			t.refused(s)
		default: // it may be held
			n++
		}
	}
}

// lapse acquires keys in turn, each again before its lease of a second is over, and never releases one.
func (c *Crew) lapse(t *seat) {
	defer t.close()
	for n := 0; c.sleep(900 * time.Millisecond / time.Duration(c.load.Lapse)); n++ {
		if s := t.session(); s != nil {
			// What becomes of it is for the history alone.
			s.Acquire(fmt.Sprintf("%s/lapse/%d", c.load.Prefix, n%c.load.Lapse), 3*time.Second, time.Second, true)
		}
	}
}

type worker struct {
	*seat
	rnd *rand.Rand
	hot bool
	old []history.Op // grants seen, the last few
}

func (w *worker) work() {
	defer w.close()
	load := &w.crew.load
	for w.crew.sleep(time.Duration(w.rnd.Int64N(int64(load.Pause)))) {
		s := w.session()
		if s == nil {
			if !w.crew.sleep(redial) {
				return
			}
			continue
		}
		key := fmt.Sprintf("%s/%d", load.Prefix, w.rnd.IntN(load.Keys))
		wait := time.Duration(w.rnd.IntN(4)) * time.Second
		lease := time.Duration(1+w.rnd.IntN(3)) * time.Second
		if w.hot {
			key, wait, lease = load.HotKey(), 5*time.Second, 2*time.Second
		}
		c, err := s.Acquire(key, wait, lease, wait > 0)
		if err != nil {
			continue
		}
		<-c.Done
		switch c.Op.Outcome {
		case history.Granted:
			w.hold(c.Op)
		case history.Refused:
			w.refused(s)
		case history.TimedOut:
			w.meddle()
		}
	}
}

// hold keeps a grant for a moment and mostly gives it back.
func (w *worker) hold(g history.Op) {
	if w.old = append(w.old, g); len(w.old) > 8 {
		w.old = w.old[1:]
	}
	if w.rnd.IntN(100) == 0 { // forget it: the lease must end it
		return
	}
	w.crew.sleep(time.Duration(w.rnd.Int64N(int64(8 * time.Millisecond))))
	for until := time.Now().Add(g.Lease + insist); time.Now().Before(until) && !w.release(g); {
		if !w.crew.sleep(redial) { // once more, for the last time
			w.release(g)
			return
		}
	}
	if w.rnd.IntN(20) == 0 {
		w.meddle()
	}
}

// release tries to give a grant back, and says whether it was answered.
func (w *worker) release(g history.Op) bool {
	s := w.session()
	if s == nil {
		return false
	}
	c, err := s.Release(g.Key, g.Token)
	if err != nil {
		return false
	}
	<-c.Done
	if c.Op.Outcome == history.Refused {
		w.refused(s)
	}
	return c.Op.Outcome == history.Released || c.Op.Outcome == history.NotHeld
}

// meddle releases what it once had.
func (w *worker) meddle() {
	if len(w.old) > 0 {
		w.release(w.old[w.rnd.IntN(len(w.old))])
	}
}

// FirstGrant tries all places with keys that nobody has ever used, until one is granted or the time is over. It returns
// when that was, and by which place.
func (c *Crew) FirstGrant(within time.Duration) (at time.Duration, place int, ok bool) {
	type first struct {
		at    time.Duration
		place int
	}
	found := make(chan first, len(c.route.Places)) // one a place: none is ever left waiting
	stop := make(chan struct{})
	defer close(stop)
	for i := range c.route.Places {
		c.run(func() {
			if at, ok := c.probe(i, stop); ok {
				found <- first{at, i}
			}
		})
	}
	over := time.NewTimer(within)
	defer over.Stop()
	select {
	case f := <-found:
		return f.at, f.place, true
	case <-over.C:
	case <-c.stop:
	}
	return 0, 0, false
}

// probe tries one place until it grants or stop is closed.
func (c *Crew) probe(i int, stop <-chan struct{}) (at time.Duration, ok bool) {
	d := *c.dialer
	d.Settle = 0
	var s *Session
	defer func() {
		if s != nil {
			s.Close()
		}
	}()
	for {
		select {
		case <-stop:
			return 0, false
		case <-time.After(5 * time.Millisecond):
		}
		if s == nil {
			p := c.route.Places[i]
			if s, _ = d.Dial(p.Addr, p.Node()); s == nil {
				continue
			}
		}
		call, err := s.Acquire(fmt.Sprintf("%s/probe/%d", c.load.Prefix, c.probes.Add(1)), 0, time.Second, false)
		if err != nil {
			s = nil
			continue
		}
		select {
		case <-stop:
			return 0, false
		case <-call.Done:
		}
		if call.Op.Outcome == history.Granted {
			return call.Op.Return, true // it runs out by itself
		}
	}
}
