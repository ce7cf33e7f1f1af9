package server

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/codec"
	"github.com/ticketing-go/ticketing/eventloop"
	"github.com/ticketing-go/ticketing/ring"
)

// Both rings of a loop are full and face each other: the loop has requests for which there is no room and does not take
// replies before it is kicked, the apply goroutine has replies for which there is none. They must go on, and no session
// may see its replies out of order.
func TestFullRingsDoNotStandStill(t *testing.T) {
	for _, size := range []struct{ requests, replies int }{{1, 1}, {2, 1}, {1, 2}, {8, 2}, {4, 64}} {
		t.Run(fmt.Sprintf("%d to %d", size.requests, size.replies), func(t *testing.T) {
			t.Parallel()
			const loops, sessions, each = 3, 4, 400
			d := newDesk(t, deskSizes{loops: loops, requests: size.requests, replies: size.replies})
			d.run()
			var all sync.WaitGroup
			for i := range loops {
				all.Go(func() { // ends when all is answered, or was not for wakeLimit
					l := &simLoop{d: d, i: i}
					for n := range each {
						for s := range sessions {
							l.todo = append(l.todo, releaseOf(eventloop.NewSessionID(i, s, 1), uint64(n), 1<<40, fmt.Sprint("k", n%7)))
						}
					}
					for s := range sessions { // control messages find the ring full as well
						l.todo = append(l.todo, offer{s: eventloop.NewSessionID(i, s, 1), leave: true})
					}
					if !l.until(sessions * (each + 1)) {
						t.Errorf("loop %d: %d of %d replies, and no kick for %v", i, len(l.got), sessions*(each+1), wakeLimit)
						return
					}
					next := map[eventloop.SessionID]uint64{}
					for _, g := range l.got {
						switch {
						case g.kind == codec.Left && next[g.session] == each:
						case g.kind == codec.NotHeld && g.id == next[g.session]:
							next[g.session]++
						default:
							t.Errorf("loop %d: kind %d for id %d, want the answer to %d", i, g.kind, g.id, next[g.session])
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// Replies that come many at a time wait in the spill, in order, and all arrive: here time-outs that are due together.
func TestTimeoutsDueTogetherAllArrive(t *testing.T) {
	const loops, each = 2, 30000
	d := newDesk(t, deskSizes{loops: loops, requests: requestSlots, replies: replySlots})
	d.run()
	setup := &simLoop{d: d, todo: []offer{acquireOf(eventloop.NewSessionID(0, 0, 1), 1, "k", 0, time.Hour)}}
	setup.must(1)
	var all sync.WaitGroup
	begin := time.Now()
	due := begin.Add(1500 * time.Millisecond)
	for i := range loops {
		all.Go(func() { // ends when all is answered, or was not for wakeLimit
			l := &simLoop{d: d, i: i}
			seen := make([]bool, each)
			for n := range each {
				l.todo = append(l.todo, acquireOf(eventloop.NewSessionID(i, 1+n, 1), uint64(n), "k", time.Until(due), time.Hour))
				if n%500 == 499 { // never so many in flight that the gate closes
					l.offerAll()
					for d.h.gates.acquires.Load() > 500 {
						runtime.Gosched()
					}
				}
			}
			if !l.until(each) {
				t.Errorf("loop %d: %d of %d replies, and no kick for %v", i, len(l.got), each, wakeLimit)
				return
			}
			for _, g := range l.got {
				if g.kind != codec.TimedOut || seen[g.id] || g.session.Slot() != 1+int(g.id) {
					t.Errorf("loop %d: kind %d for id %d (seen %v), want TimedOut once", i, g.kind, g.id, seen[g.id])
					return
				}
				seen[g.id] = true
			}
			if early := l.got[0].at; early.Before(due.Add(-50 * time.Millisecond)) {
				t.Errorf("loop %d: the first came %v early", i, due.Sub(early))
			}
		})
	}
	all.Wait()
	d.a.do(func() {
		for i, l := range d.h.lanes {
			if n, room := l.spill.len(), cap(l.spill.list); n > 0 || room > backlogKept {
				t.Errorf("loop %d: the spill keeps %d replies and room for %d, want none and at most %d", i, n, room, backlogKept)
			}
		}
	})
}

// A loop that was told that there is no room is kicked as soon as there is, even if no reply makes it look.
func TestStarvedLoopIsKicked(t *testing.T) {
	d := newDesk(t, deskSizes{loops: 1, requests: 4, replies: 16})
	s := eventloop.NewSessionID(0, 0, 1)
	d.run()
	l := &simLoop{d: d, todo: []offer{acquireOf(s, 1, "k", 0, time.Hour)}}
	l.must(1)
	d.a.turn.Lock()            // nothing is decided
	for i := range uint64(5) { // all of them will wait, and are not answered
		l.todo = append(l.todo, acquireOf(s, 2+i, "k", time.Hour, time.Hour))
	}
	l.offerAll()
	waiting := len(l.todo)
	select {
	case <-d.kicks[0]:
		t.Error("kicked before there is room")
	default:
	}
	d.a.turn.Unlock()
	if waiting != 1 {
		t.Fatalf("%d requests not taken by a ring of 4, want 1", waiting)
	}
	select {
	case <-d.kicks[0]:
	case <-time.After(wakeLimit):
		t.Fatalf("not kicked within %v", wakeLimit)
	}
	if l.offerAll(); len(l.todo) > 0 {
		t.Error("kicked without room")
	}
}

// Control messages are never lost and never overtaken by requests behind them.
func TestControlMessagesWaitInOrder(t *testing.T) {
	d := newDesk(t, deskSizes{loops: 1, requests: 2, replies: 16})
	first, second := eventloop.NewSessionID(0, 0, 1), eventloop.NewSessionID(0, 1, 1)
	d.a.turn.Lock()
	l := &simLoop{d: d, todo: []offer{
		acquireOf(first, 1, "k", 0, time.Hour), acquireOf(first, 2, "k", time.Hour, time.Hour), {s: first, leave: true}, {s: second, leave: true},
		releaseOf(second, 3, 1<<40, "k"),
	}}
	l.offerAll()
	if len(l.todo) != 1 || d.h.lanes[0].control.len() != 2 {
		d.a.turn.Unlock()
		t.Fatalf("%d requests and %d control messages wait, want 1 and 2", len(l.todo), d.h.lanes[0].control.len())
	}
	d.a.turn.Unlock()
	d.run()
	kinds := map[codec.Kind]int{}
	for _, g := range l.must(4) {
		kinds[g.kind]++
	}
	if kinds[codec.Granted] != 1 || kinds[codec.Left] != 2 || kinds[codec.NotHeld] != 1 {
		t.Errorf("kinds %v, want one grant, two Left, one NotHeld", kinds)
	}
}

// Whoever sends and whose replies are not written yet is not read any further: what waits to be written is bounded by the
// rings. All of it is answered in the end.
func TestSpillIsBounded(t *testing.T) {
	const n, slots = 10000, 64
	d := newDesk(t, deskSizes{loops: 1, requests: slots, replies: 8})
	d.run()
	l := &simLoop{d: d}
	for i := range uint64(n) {
		s := eventloop.NewSessionID(0, int(i%4), 1)
		l.todo = append(l.todo, acquireOf(s, 2*i, "k", 0, time.Hour), releaseOf(s, 2*i+1, 1<<40, "k"))
	}
	for range n / slots {
		l.offerAll() // and takes no reply
		spill := 0
		d.a.do(func() { spill = d.h.lanes[0].spill.len() })
		if spill > 2*slots {
			t.Fatalf("%d replies wait for room, want at most %d", spill, 2*slots)
		}
	}
	l.must(2 * n)
}

// A long backlog goes through a ring of one slot as fast as through a large one, in order: closing it up after each step
// would copy gigabytes here, while whoever does it has the turn.
func TestLongBacklogsAreNotCopiedAtEachStep(t *testing.T) {
	const n = 1 << 16
	end := time.Now().Add(wakeLimit)
	inTime := func(t *testing.T, i int) {
		t.Helper()
		if i%64 == 0 && time.Now().After(end) {
			t.Fatalf("%d of %d have moved in %v", i, n, wakeLimit)
		}
	}
	l := newSizedHost(1, 1, 1).lanes[0]
	t.Run("spill", func(t *testing.T) {
		for i := range uint64(n) {
			l.slot().ID = i
		}
		for i := range n {
			inTime(t, i)
			l.unspill()
			l.replies.Publish()
			if s := l.replies.Next(); s == nil || s.ID != uint64(i) {
				t.Fatalf("reply %d: got %v", i, s)
			}
			l.replies.Release()
		}
		if l.spill.len() > 0 || l.spilled.Load() {
			t.Errorf("%d replies are left, spilled %v", l.spill.len(), l.spilled.Load())
		}
	})
	t.Run("control", func(t *testing.T) {
		for i := range n {
			inTime(t, i)
			l.putControl(request{id: uint64(i)})
		}
		for i := range n {
			inTime(t, i)
			l.moveControl()
			l.requests.Publish()
			if r := l.requests.Next(); r == nil || r.id != uint64(i) {
				t.Fatalf("control message %d: got %v", i, r)
			}
			l.requests.Release()
		}
		if l.control.len() > 0 {
			t.Errorf("%d control messages are left", l.control.len())
		}
	})
}

// A backlog that is never empty does not grow with what has gone through it.
func TestBacklogThatIsNeverEmpty(t *testing.T) {
	r := ring.New[int](4)
	var b backlog[int]
	put, got := 0, 0
	for range 100 {
		*b.add() = put
		put++
	}
	for range 10000 {
		for range 3 {
			*b.add() = put
			put++
		}
		b.moveTo(r)
		r.Publish()
		for range 3 {
			if v := r.Next(); v == nil || *v != got {
				t.Fatalf("value %d: got %v", got, v)
			}
			got++
		}
		r.Release()
	}
	if b.len() == 0 || cap(b.list) > 1000 {
		t.Errorf("%d values wait in room for %d", b.len(), cap(b.list))
	}
}
