package server

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/codec"
	"github.com/ticketing-go/ticketing/eventloop"
	"github.com/ticketing-go/ticketing/locktable"
)

// wakeLimit is how long a test waits for what has to come: only a lost wake-up takes that long.
const wakeLimit = 20 * time.Second

// desk is an applier with its host and simulated loops in the place of gnet's.
type desk struct {
	t     *testing.T
	h     *host
	a     *applier
	kicks []chan struct{} // one slot each: a drain takes all that is there
	held  *heldRecords    // nil: every record is committed at once
}

// heldRecords is a committer that keeps records until the test commits them, as Raft does. Under the turn.
type heldRecords struct{ records []*locktable.Record }

func (c *heldRecords) propose(_ time.Duration, r *locktable.Record) {
	var kept locktable.Record
	if err := locktable.DecodeRecord(locktable.AppendRecord(nil, r), &kept); err != nil {
		panic(err) // a record that its own package cannot read
	}
	c.records = append(c.records, &kept)
}

type deskSizes struct {
	loops, requests, replies int
	limits                   locktable.Limits
	hold                     bool
}

// newDesk makes a desk whose table leads. Its apply goroutine runs once run is called.
func newDesk(t *testing.T, size deskSizes) *desk {
	t.Helper()
	if size.limits.MaxKeys == 0 {
		size.limits = locktable.Limits{MaxKeys: 1 << 20, MaxWaiters: 1 << 17, MaxTotalWaiters: 1 << 17}
	}
	size.limits.MaxRecords, size.limits.MaxEntries = maxRecords, maxEntries
	d := &desk{t: t, h: newSizedHost(size.loops, size.requests, size.replies)}
	d.a = newApplier(d.h, size.limits, 1)
	d.h.serve = d.a.serve
	for range size.loops {
		d.kicks = append(d.kicks, make(chan struct{}, 1))
	}
	d.a.kick = func(loop int) {
		select {
		case d.kicks[loop] <- struct{}{}:
		default:
		}
	}
	d.a.commit = alone{d.a.table}
	if size.hold {
		d.held = &heldRecords{}
		d.a.commit = d.held
	}
	d.a.table.Commit(0, d.a.table.Begin(0, locktable.Proposer{Stint: 1}, locktable.StartTerms{FirstToken: 1}))
	return d
}

func (d *desk) run() {
	go d.a.run() // ends with the test
	d.t.Cleanup(func() {
		close(d.a.quit)
		<-d.a.ended
	})
}

// What a loop hands over after the drain has looked at the clock may have been read long after that look: an applier that
// is held up in between must not count its wait from there.
func TestNoWaitCountsFromBeforeItWasRead(t *testing.T) {
	d := newDesk(t, deskSizes{loops: 1, requests: 16, replies: 16})
	holder, waiter := eventloop.NewSessionID(0, 0, 1), eventloop.NewSessionID(0, 1, 1)
	l := &simLoop{d: d, todo: []offer{acquireOf(holder, 1, "k", 0, time.Hour)}}
	d.h.serve = func() {} // the loop leaves it to others
	l.offerAll()
	clock, held := time.Second, false // of the desk
	d.a.now = func() time.Duration {
		was := clock
		if !held { // the drain's look; three seconds later the loop reads a request
			held = true
			clock += 3 * time.Second
			l.todo = []offer{acquireOf(waiter, 2, "k", 10*time.Second, time.Hour)}
			l.offerAll()
		}
		return was
	}
	at := func(now time.Duration) int {
		clock = now
		for d.a.round() {
		}
		l.drain()
		return len(l.got)
	}
	if n := at(clock); n != 1 {
		t.Fatalf("said %v, want one grant", l.got)
	}
	// A wait ends early by at most 100 ms, PROTOCOL.md section 3.
	if n := at(4*time.Second + 9900*time.Millisecond); n != 1 {
		t.Errorf("the wait of 10 s ended early: %v", l.got)
	}
	if n := at(4*time.Second + 10*time.Second); n != 2 {
		t.Errorf("the wait of 10 s has not ended: %v", l.got)
	}
}

// commit commits the oldest record that is held, and says whether there was one.
func (d *desk) commit() (did bool) {
	d.a.call(func() {
		if did = len(d.held.records) > 0; did {
			r := d.held.records[0]
			d.held.records = d.held.records[1:]
			d.a.table.Commit(d.a.now(), r)
		}
	})
	return did
}

// said is a reply as a loop got it.
type said struct {
	session eventloop.SessionID
	kind    codec.Kind
	id      uint64
	token   uint64
	key     string
	at      time.Time
}

// simLoop does what an event loop does with its host: offers until there is no room, and then waits to be kicked.
type simLoop struct {
	d    *desk
	i    int
	todo []offer
	got  []said
}

type offer struct {
	s eventloop.SessionID
	r codec.Request
	// leave: not a request, but a Leave.
	leave bool
}

func (l *simLoop) offerAll() {
	for len(l.todo) > 0 {
		o := &l.todo[0]
		if o.leave {
			l.d.h.Leave(o.s)
		} else if !l.d.h.Request(o.s, &o.r) {
			break
		}
		l.todo = l.todo[1:]
	}
	l.d.h.Flush(l.i)
}

func (l *simLoop) drain() {
	taken := false
	for {
		s, r, ok := l.d.h.NextReply(l.i)
		if !ok {
			break
		}
		taken = true
		l.got = append(l.got, said{s, r.Kind, r.ID, r.Token, string(r.Key), time.Now()})
	}
	if taken {
		l.d.h.RepliesTaken(l.i)
	}
}

// until goes on until n replies have come since the loop was made; false: it was never kicked again.
func (l *simLoop) until(n int) bool {
	late := time.NewTimer(wakeLimit)
	defer late.Stop()
	for {
		l.offerAll()
		if len(l.got) >= n {
			return true
		}
		select {
		case <-l.d.kicks[l.i]:
			late.Reset(wakeLimit)
		case <-late.C:
			return false
		}
		l.drain()
	}
}

func (l *simLoop) must(n int) []said {
	l.d.t.Helper()
	if !l.until(n) {
		l.d.t.Fatalf("loop %d has %d replies, want %d, and was not kicked for %v; %d requests not taken", l.i, len(l.got), n, wakeLimit, len(l.todo))
	}
	return l.got
}

func acquireOf(s eventloop.SessionID, id uint64, key string, wait, lease time.Duration) offer {
	return offer{s: s, r: codec.Request{Op: codec.Acquire, ID: id, Key: []byte(key), Wait: wait, Lease: lease}}
}

func releaseOf(s eventloop.SessionID, id, token uint64, key string) offer {
	return offer{s: s, r: codec.Request{Op: codec.Release, ID: id, Token: token, Key: []byte(key)}}
}

func wantSaid(t *testing.T, got said, kind codec.Kind, id uint64) {
	t.Helper()
	if got.kind != kind || got.id != id {
		t.Fatalf("got kind %d for id %d, want kind %d for id %d", got.kind, got.id, kind, id)
	}
}

// PROTOCOL.md section 3: a grant that was never handed to the socket layer is revoked, and the next waiter granted, at
// once; tokens have no gap.
func TestUndeliveredGrantGoesToTheNextWaiter(t *testing.T) {
	d := newDesk(t, deskSizes{loops: 1, requests: 64, replies: 64})
	d.run()
	first, second := eventloop.NewSessionID(0, 0, 1), eventloop.NewSessionID(0, 1, 1)
	l := &simLoop{d: d, todo: []offer{
		acquireOf(first, 1, "k", 0, time.Hour), acquireOf(second, 2, "k", time.Hour, time.Hour), releaseOf(second, 3, 99, "fence"),
	}}
	got := l.must(2)
	granted := got[0]
	if granted.kind != codec.Granted {
		granted = got[1]
	}
	wantSaid(t, granted, codec.Granted, 1)
	d.h.Disconnected(first)
	d.h.Undelivered(first, &codec.Reply{Kind: codec.Granted, Token: granted.token, Key: []byte("k")})
	got = l.must(3)
	wantSaid(t, got[2], codec.Granted, 2)
	if got[2].token != granted.token+1 {
		t.Errorf("next token is %d, want %d", got[2].token, granted.token+1)
	}
	l.todo = append(l.todo, releaseOf(second, 4, granted.token, "k"), releaseOf(second, 5, got[2].token, "k"))
	got = l.must(5)
	wantSaid(t, got[3], codec.NotHeld, 4)
	wantSaid(t, got[4], codec.Released, 5)
}

// A leader that has heard from no majority writes no grant (PROTOCOL.md section 6). Such a grant was not handed to the
// socket layer either: when the majority is back, the next waiter has the key at once, and not when a lease of nobody ends.
func TestMutedGrantGoesToTheNextWaiter(t *testing.T) {
	d := newDesk(t, deskSizes{loops: 1, requests: 64, replies: 64})
	muted := true // of the one loop
	d.h.muted = func() bool { defer func() { muted = false }(); return muted }
	d.run()
	first, second := eventloop.NewSessionID(0, 0, 1), eventloop.NewSessionID(0, 1, 1)
	l := &simLoop{d: d, todo: []offer{acquireOf(first, 1, "k", 0, time.Hour), acquireOf(second, 2, "k", time.Hour, time.Hour)}}
	l.offerAll()
	for late := time.After(wakeLimit); len(l.got) < 2; l.drain() { // the loop does nothing of its own
		select {
		case <-d.kicks[0]:
		case <-late:
			t.Fatalf("the waiter behind a grant that was not written got nothing in %v: %v", wakeLimit, l.got)
		}
	}
	wantSaid(t, l.got[0], codec.LostProposed, 1)
	wantSaid(t, l.got[1], codec.Granted, 2)
}

// A notice of an undelivered grant that is no longer held, or is another's, does nothing.
func TestUndeliveredNoticeThatComesLate(t *testing.T) {
	d := newDesk(t, deskSizes{loops: 1, requests: 64, replies: 64})
	d.run()
	s := eventloop.NewSessionID(0, 0, 1)
	l := &simLoop{d: d, todo: []offer{acquireOf(s, 1, "k", 0, time.Hour)}}
	first := l.must(1)[0].token
	l.todo = append(l.todo, releaseOf(s, 2, first, "k"))
	l.must(2)
	l.todo = append(l.todo, acquireOf(s, 3, "k", 0, time.Hour))
	second := l.must(3)[2].token
	d.h.Undelivered(s, &codec.Reply{Kind: codec.Granted, Token: first, Key: []byte("k")})
	l.todo = append(l.todo, releaseOf(s, 4, second, "k"))
	wantSaid(t, l.must(4)[3], codec.Released, 4)
}

// A session that ends while its grant is in flight: the grant is taken back once it has been committed, and the next
// waiter has the key.
func TestSessionEndsWithAGrantInFlight(t *testing.T) {
	d := newDesk(t, deskSizes{loops: 1, requests: 64, replies: 64, hold: true})
	d.run()
	first, second := eventloop.NewSessionID(0, 0, 1), eventloop.NewSessionID(0, 1, 1)
	l := &simLoop{d: d, todo: []offer{acquireOf(first, 1, "k", 0, time.Hour)}}
	l.offerAll()
	d.h.Disconnected(first)
	l.todo = []offer{acquireOf(second, 2, "k", time.Hour, time.Hour)}
	l.offerAll()
	end := time.Now().Add(wakeLimit)
	for len(l.got) == 0 || l.got[len(l.got)-1].session != second {
		if time.Now().After(end) {
			t.Fatalf("the waiter behind a session that has ended was not granted: %v", l.got)
		}
		d.commit()
		l.offerAll()
		l.drain()
	}
	wantSaid(t, l.got[len(l.got)-1], codec.Granted, 2)
}

// Leave: what is in flight is answered first, what is queued leaves without an answer, and then comes Left.
func TestLeaveAnswersWhatIsInFlightFirst(t *testing.T) {
	d := newDesk(t, deskSizes{loops: 1, requests: 64, replies: 64, hold: true})
	d.run()
	s, other := eventloop.NewSessionID(0, 0, 1), eventloop.NewSessionID(0, 1, 1)
	l := &simLoop{d: d, todo: []offer{acquireOf(other, 1, "l", 0, time.Hour)}}
	l.offerAll()
	for !d.commit() {
	}
	l.must(1)
	l.todo = []offer{acquireOf(s, 2, "l", time.Hour, time.Hour), acquireOf(s, 3, "k", 0, time.Hour), {s: s, leave: true}}
	l.offerAll()
	l.todo = []offer{releaseOf(other, 4, 1<<40, "nobody")} // answered at once, behind all of that: a fence
	l.offerAll()
	d.a.do(func() {}) // what was handed over has been decided
	l.drain()
	for _, g := range l.got[1:] {
		if g.session == s {
			t.Fatalf("answered before the commit: kind %d", g.kind)
		}
	}
	var of []said
	for end := time.Now().Add(wakeLimit); len(of) < 2 && time.Now().Before(end); {
		d.commit()
		l.drain()
		of = of[:0]
		for _, g := range l.got {
			if g.session == s {
				of = append(of, g)
			}
		}
	}
	if len(of) != 2 || of[0].kind != codec.Granted || of[0].id != 3 || of[1].kind != codec.Left {
		t.Errorf("got %v, want the grant and then Left", of)
	}
}

// Loops take the turn while the apply goroutine falls asleep and wakes. Nothing may be lost in between: every command is
// answered, and deadlines that were set in a loop's own round fire.
func TestNoWakeUpIsLostBetweenLoopsAndApplyGoroutine(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const loops = 6
	rounds := 1500
	if testing.Short() {
		rounds = 300
	}
	d := newDesk(t, deskSizes{loops: loops, requests: 16, replies: 4})
	d.run()
	holder := eventloop.NewSessionID(0, 0, 1)
	setup := &simLoop{d: d, todo: []offer{acquireOf(holder, 1, "held", 0, time.Hour)}}
	setup.must(1)
	var all sync.WaitGroup
	for i := range loops {
		all.Go(func() { // ends when it has been answered everything, or was not for wakeLimit
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			l := &simLoop{d: d, i: i}
			s := eventloop.NewSessionID(i, 1, 1)
			for n := range rounds {
				sent := time.Now()
				wait := time.Duration(0)
				switch r.IntN(4) {
				case 0: // alone with a deadline: nothing else will wake anybody
					wait = time.Duration(1+r.IntN(3000)) * time.Microsecond
					l.todo = append(l.todo, acquireOf(s, uint64(n), "held", wait, time.Hour))
				case 1:
					l.todo = append(l.todo, acquireOf(s, uint64(n), "held", 0, time.Hour))
				case 2:
					l.todo = append(l.todo, releaseOf(s, uint64(n), 1<<40, fmt.Sprint("k", i)))
				default:
					l.todo = append(l.todo, acquireOf(s, uint64(n), fmt.Sprint("k", i, n), 0, time.Millisecond))
				}
				if !l.until(n + 1) {
					t.Errorf("loop %d, request %d (wait %v): not answered within %v", i, n, wait, wakeLimit)
					return
				}
				if took := time.Since(sent); took < wait || l.got[n].id != uint64(n) {
					t.Errorf("loop %d, request %d: answer to %d after %v, wait %v", i, n, l.got[n].id, took, wait)
				}
			}
		})
	}
	all.Wait()
}

// The apply goroutine is awake when a job is posted, and then finds the turn taken and falls asleep: whoever has the turn
// runs the job or wakes it. Nothing else may come that does: Raft, Stop and the admin pages wait for jobs.
func TestJobPostedWhileAnotherHasTheTurn(t *testing.T) {
	for _, at := range []string{"serve", "call"} {
		t.Run(at, func(t *testing.T) {
			d := newDesk(t, deskSizes{loops: 1, requests: 16, replies: 16})
			ran, posted := false, false
			kick := d.a.kick
			between := func() {
				if posted {
					return
				}
				posted = true
				d.a.post(func() { ran = true }) // rings while nobody sleeps
				d.h.bell.Arm()                  // the apply goroutine goes to sleep
				if d.a.turn.TryLock() {
					t.Fatal("nobody has the turn")
				}
			}
			if at == "call" {
				d.a.call(between)
			} else {
				d.a.kick = func(loop int) { kick(loop); between() }
				l := &simLoop{d: d, todo: []offer{releaseOf(eventloop.NewSessionID(0, 0, 1), 1, 1<<40, "k")}}
				l.offerAll()
			}
			if !posted {
				t.Fatal("no job was posted")
			}
			select {
			case <-d.h.bell.C():
			default:
				if !ran {
					t.Error("the job was not run, and nobody was woken for it")
				}
			}
		})
	}
}

// do and call run their function once, from many goroutines, while loops have their turns; do says false once the
// goroutine has ended.
func TestJobsRunOnce(t *testing.T) {
	d := newDesk(t, deskSizes{loops: 1, requests: 16, replies: 16})
	go d.a.run() // ends below
	ran := 0     // under the turn
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { // ends with its jobs
			for range 500 {
				f := d.a.do
				if i%2 == 0 {
					f = d.a.call
				}
				if !f(func() { ran++ }) {
					t.Error("a job did not run")
				}
			}
		})
	}
	all.Wait()
	d.a.call(func() {
		if ran != 4000 {
			t.Errorf("%d jobs ran, want 4000", ran)
		}
	})
	close(d.a.quit)
	<-d.a.ended
	if d.a.do(func() { t.Error("a job ran after the end") }) {
		t.Error("do said that a job ran after the end")
	}
}
