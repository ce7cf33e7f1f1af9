// Package history decides whether what the clients of a lock service saw can be explained by PROTOCOL.md and
// CLUSTER.md: one holder at a time, fencing tokens that only grow, leases never cut short, waiters served in their
// order, and no key left idle while somebody waits for it. It refuses to know sockets, wires and processes: it is given
// operations with the times of one monotonic clock. A Recorder may be used by any number of goroutines at once; all
// else belongs to the goroutine that calls it.
package history

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// Never is the instant of what does not come.
const Never = time.Duration(math.MaxInt64)

// Kind says what an operation asked for.
type Kind uint8

const (
	Acquire Kind = iota + 1 // Key, Owner, Wait, Lease
	Release                 // Key, Token
)

// Outcome says how an operation ended for the client that made it.
type Outcome uint8

const (
	Granted    Outcome = iota + 1 // A: Token is what was granted
	TimedOut                      // T: definitely not acquired
	Busy                          // B: definitely not acquired
	Refused                       // M or E no_leader, not_active, with the connection staying open: no effect
	Released                      // R
	NotHeld                       // N
	Unknown                       // sent, and the session ended before its answer: it may or may not have had effect
	Unanswered                    // sent, and no answer came on a live session long after one was due
)

var outcomeText = [...]string{"none", "granted", "timed out", "busy", "refused", "released", "not held", "unknown",
	"unanswered"}

// String is the outcome in words.
func (o Outcome) String() string { return outcomeText[o] }

// Op is one operation as its client saw it. Instants are durations since the Recorder was made.
type Op struct {
	Key     string
	Owner   uint64        // acquires: the number that the reply echoes
	Token   uint64        // granted, or to be released
	Wait    time.Duration // acquires: as asked for; 0 is one attempt without queueing
	Lease   time.Duration // acquires
	Call    time.Duration // just before the write
	Return  time.Duration // just after the reply was read; Never where there was none
	Queued  time.Duration // acquires: something sent behind it on its session had been answered; 0: not known
	Gone    time.Duration // Unknown, Unanswered: when the client gave up or saw its session end
	Session int32         // session of the client
	Node    int32         // process that was asked; a process started again is another one
	Kind    Kind
	Outcome Outcome
}

// String says what happened, for a report.
func (o *Op) String() string {
	at := func(d time.Duration) string {
		if d == Never {
			return "never"
		}
		return d.Round(10 * time.Microsecond).String()
	}
	if o.Kind == Release {
		return fmt.Sprintf("[session %d node %d %s..%s release %q token %d: %s]",
			o.Session, o.Node, at(o.Call), at(o.Return), o.Key, o.Token, o.Outcome)
	}
	return fmt.Sprintf("[session %d node %d %s..%s acquire %q owner %d wait %s lease %s: %s token %d]",
		o.Session, o.Node, at(o.Call), at(o.Return), o.Key, o.Owner, o.Wait, o.Lease, o.Outcome, o.Token)
}

// mayRelease says that the operation may have ended a hold.
func (o *Op) mayRelease() bool {
	return o.Kind == Release && (o.Outcome == Released || o.Outcome == Unknown || o.Outcome == Unanswered)
}

// open says that nobody knows whether the operation had effect.
func (o *Op) open() bool { return o.Outcome == Unknown || o.Outcome == Unanswered }

// Window is a span of time.
type Window struct{ From, To time.Duration }

// History is what was seen in one fencing domain.
type History struct {
	Ops []Op
	// Unstable are the spans in which the service had no stable leader, as whoever made the faults knows: bounds on how
	// late something may come do not hold in them. They must reach from before the fault to when service was back.
	Unstable []Window
	// Stalls are the spans in which the observing process itself did not run: every bound grows by what it overlaps.
	Stalls []Window
	// Strays are replies that answered nothing: each is a violation.
	Strays []string
	// Above is the greatest token of the domain known before this history; all of it must be above.
	Above uint64
}

// Recorder collects a history while it happens.
type Recorder struct {
	start time.Time

	mu struct {
		sync.Mutex
		h History
	}
}

// NewRecorder starts the clock of a history whose tokens must all be above the one given.
func NewRecorder(above uint64) *Recorder {
	r := &Recorder{start: time.Now()}
	r.mu.h.Above = above
	return r
}

// Now is the present instant.
func (r *Recorder) Now() time.Duration { return time.Since(r.start) }

// Add records an operation that has ended.
func (r *Recorder) Add(op Op) {
	r.mu.Lock()
	r.mu.h.Ops = append(r.mu.h.Ops, op)
	r.mu.Unlock()
}

// Stray records a reply that answered nothing.
func (r *Recorder) Stray(what string) {
	r.mu.Lock()
	r.mu.h.Strays = append(r.mu.h.Strays, what)
	r.mu.Unlock()
}

// Unstable records a span without a stable leader.
func (r *Recorder) Unstable(from, to time.Duration) {
	r.mu.Lock()
	r.mu.h.Unstable = append(r.mu.h.Unstable, Window{from, to})
	r.mu.Unlock()
}

// Stall records a span in which the observer did not run.
func (r *Recorder) Stall(from, to time.Duration) {
	r.mu.Lock()
	r.mu.h.Stalls = append(r.mu.h.Stalls, Window{from, to})
	r.mu.Unlock()
}

// Len is the number of operations recorded so far.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.h.Ops)
}

// History returns what was recorded. The caller must have stopped all that records: the slices are shared.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.mu.h
	return &h
}

// Watch records stalls of the observing process, until stop is closed: it sleeps in short steps, and a step that took
// longer than it should by more than a few milliseconds was a stall. Run it on a goroutine of its own.
func (r *Recorder) Watch(stop <-chan struct{}) {
	const step, excuse = 2 * time.Millisecond, 8 * time.Millisecond
	tick := time.NewTimer(step)
	defer tick.Stop()
	for {
		before := r.Now()
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if after := r.Now(); after-before > step+excuse {
			r.Stall(before, after)
		}
		tick.Reset(step)
	}
}
