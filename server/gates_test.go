package server

import (
	"sync"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/codec"
	"github.com/ticketing-go/ticketing/eventloop"
	"github.com/ticketing-go/ticketing/locktable"
)

// PROTOCOL.md section 5: the gate of acquires in flight closes at 90 % of 4096 and opens below 75 %; it moves with use,
// not with the next try.
func TestAcquireGateHysteresis(t *testing.T) {
	var g gates
	for i := range 3686 {
		if !g.enterAcquire() {
			t.Fatalf("acquire %d was turned away", i+1)
		}
	}
	if !g.closed.Load() || g.enterAcquire() {
		t.Fatal("the gate is open with 3686 in flight")
	}
	g.leave(614, 0)
	if g.enterAcquire() {
		t.Fatal("the gate is open with 3072 in flight")
	}
	g.leave(1, 0)
	if g.closed.Load() || !g.enterAcquire() {
		t.Fatal("the gate is closed with 3071 in flight")
	}
	for i := range 614 {
		if !g.enterAcquire() {
			t.Fatalf("acquire %d after it opened was turned away", i+1)
		}
	}
	if g.enterAcquire() {
		t.Fatal("it did not close again at 3686")
	}
}

func TestReleaseLaneHoldsExactly512(t *testing.T) {
	var g gates
	for i := range 512 {
		if !g.enterRelease() {
			t.Fatalf("release %d found no room", i+1)
		}
	}
	if g.enterRelease() || g.enterRelease() {
		t.Fatal("a 513th release found room")
	}
	g.leave(0, 1)
	if !g.enterRelease() || g.enterRelease() {
		t.Fatal("one left, so one more has room and not two")
	}
}

// However many loops enter at once, never more than the limit is in, and in the end the gate is open.
func TestGateUnderContention(t *testing.T) {
	var g gates
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { // ends with its rounds
			for range 200 {
				in := 0
				for range 700 {
					if g.enterAcquire() {
						in++
					}
				}
				if n := g.acquires.Load(); n > maxAcquires+8 { // each loop may be in the middle of one try
					t.Errorf("%d in flight, limit %d", n, maxAcquires)
				}
				g.leave(in, 0)
			}
		})
	}
	all.Wait()
	if n := g.acquires.Load(); n != 0 || g.closed.Load() {
		t.Errorf("at the end %d in flight, closed %v", n, g.closed.Load())
	}
}

// With the turn held nothing is decided: the 3687th acquire is answered B in its place, releases go on in their own lane,
// and the 513th release is not taken until there is room.
func TestLanesAtTheirLimits(t *testing.T) {
	d := newDesk(t, deskSizes{loops: 1, requests: requestSlots, replies: replySlots})
	s := eventloop.NewSessionID(0, 0, 1)
	key := func(i int) string {
		return string([]byte{'k', byte('0' + i/4096), byte(i>>6&63) + 48, byte(i&63) + 48})
	}
	d.a.turn.Lock()
	l := &simLoop{d: d}
	for i := range 4000 {
		l.todo = append(l.todo, acquireOf(s, uint64(i), key(i), 0, time.Hour))
	}
	for i := range 513 {
		l.todo = append(l.todo, releaseOf(s, uint64(10000+i), 1<<40, "k"))
	}
	l.offerAll()
	waiting := len(l.todo)
	d.a.turn.Unlock()
	if waiting != 1 {
		t.Fatalf("%d requests were not taken, want the 513th release alone", waiting)
	}
	d.run()
	count := map[codec.Kind]int{}
	for _, g := range l.must(4513) {
		count[g.kind]++
		if g.kind == codec.Busy && (g.id < 3686 || g.id >= 4000) {
			t.Fatalf("B for id %d, want it for 3686 to 3999", g.id)
		}
	}
	if count[codec.Granted] != 3686 || count[codec.Busy] != 314 || count[codec.NotHeld] != 513 {
		t.Errorf("replies by kind %v, want 3686 grants, 314 B, 513 N", count)
	}
	if a, r := d.h.gates.acquires.Load(), d.h.gates.releases.Load(); a != 0 || r != 0 || d.h.gates.closed.Load() {
		t.Errorf("in flight at the end: %d acquires, %d releases, closed %v", a, r, d.h.gates.closed.Load())
	}
}

// In flight means not yet committed: acquires whose records are held count, waiters do not.
func TestInFlightLastsUntilTheCommit(t *testing.T) {
	d := newDesk(t, deskSizes{loops: 1, requests: 64, replies: 64, hold: true})
	d.run()
	s := eventloop.NewSessionID(0, 0, 1)
	l := &simLoop{d: d, todo: []offer{acquireOf(s, 1, "k", 0, time.Hour), acquireOf(s, 2, "k", time.Hour, time.Hour)}}
	l.offerAll()
	d.a.do(func() {})
	if n := d.h.gates.acquires.Load(); n == 0 {
		t.Error("an acquire that is not committed is not in flight")
	}
	for !d.commit() {
	}
	l.must(1)
	d.a.do(func() {})
	if n := d.h.gates.acquires.Load(); n != 0 {
		t.Errorf("%d in flight with a holder and a waiter, want 0", n)
	}
}

// WIRES.md section 5.2: the acquire that the gate turns away is answered behind the older ones of its connection and key
// on wire 0.1, whether these hang on a record in flight or have been put off by a refusal. On other wires it is at once.
func TestTurnedAwayInOrder(t *testing.T) {
	for _, refused := range []bool{false, true} {
		d := newDesk(t, deskSizes{loops: 1, requests: 64, replies: 64, hold: true})
		d.run()
		s, other := eventloop.NewSessionID(0, 0, 1), eventloop.NewSessionID(0, 1, 1)
		inOrder := func(id uint64) offer {
			o := acquireOf(s, id, "k", time.Hour, time.Hour)
			o.r.Flags = codec.InOrder | codec.ByKey
			return o
		}
		l := &simLoop{d: d}
		offered := func(o ...offer) {
			l.todo = o
			l.offerAll()
			d.a.do(func() {}) // what was handed over has been decided
			l.drain()
		}
		if refused {
			offered(acquireOf(other, 1, "l", 0, time.Hour))
			offered(acquireOf(other, 2, "m", 0, time.Hour)) // in flight: until it is resolved all else is put off
			d.a.call(func() {
				d.a.table.Refuse(d.a.now(), locktable.Proposer{Stint: 1}, d.held.records[0].Seq)
				d.held.records = d.held.records[1:]
			})
		}
		offered(inOrder(3))
		d.h.gates.closed.Store(true)
		offered(inOrder(4), acquireOf(other, 5, "k", time.Hour, time.Hour))
		if len(l.got) != 1 || l.got[0].kind != codec.Busy || l.got[0].id != 5 {
			t.Fatalf("refused %v: before the commit came %v, want B for 5 alone", refused, l.got)
		}
		d.h.gates.closed.Store(false)
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
		if len(of) != 2 {
			t.Fatalf("refused %v: got %v, want two answers", refused, l.got)
		}
		wantSaid(t, of[0], codec.Granted, 3)
		wantSaid(t, of[1], codec.Busy, 4)
		if a := d.h.gates.acquires.Load(); a != 0 {
			t.Errorf("refused %v: %d acquires in flight at the end", refused, a)
		}
	}
}
