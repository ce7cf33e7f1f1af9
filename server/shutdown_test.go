package server

import (
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/codec"
	"github.com/ticketing-go/ticketing/eventloop"
)

// PROTOCOL.md section 7: queued acquires get the definite no, what is in flight is answered when it commits, what is read
// meanwhile gets not_active.
func TestStopAnswersEverybody(t *testing.T) {
	d := newDesk(t, deskSizes{loops: 1, requests: 64, replies: 64, hold: true})
	d.run()
	s := eventloop.NewSessionID(0, 0, 1)
	l := &simLoop{d: d, todo: []offer{acquireOf(s, 1, "k", 0, time.Hour)}}
	l.offerAll()
	for !d.commit() {
	}
	l.must(1)
	l.todo = []offer{acquireOf(s, 2, "k", time.Hour, time.Hour), acquireOf(s, 3, "l", time.Hour, time.Hour)}
	l.offerAll()
	d.a.do(d.a.stop)
	l.todo = []offer{acquireOf(s, 4, "m", time.Hour, time.Hour), releaseOf(s, 5, 1, "k")}
	kinds := map[uint64]codec.Kind{}
	for _, g := range l.must(4)[1:] {
		kinds[g.id] = g.kind
	}
	if kinds[2] != codec.StopQueued || kinds[4] != codec.NotActive || kinds[5] != codec.NotActive || kinds[3] != 0 {
		t.Errorf("kinds by id %v, want StopQueued for 2, NotActive for 4 and 5, nothing for 3 yet", kinds)
	}
	server := &Server{apply: d.a}
	done := make(chan struct{})
	begin := time.Now()
	go func() { // ends with the commit below
		server.waitInFlight()
		close(done)
	}()
	for !d.commit() {
	}
	l.must(5)
	select {
	case <-done:
	case <-time.After(wakeLimit):
		t.Fatal("waitInFlight did not end with the last commit")
	}
	if took := time.Since(begin); took > inFlightTimeout {
		t.Logf("waitInFlight took %v", took)
	}
	wantSaid(t, l.got[4], codec.Granted, 3)
}

// What never commits is waited for 1 s, and no longer.
func TestStopWaitsASecondAtMost(t *testing.T) {
	d := newDesk(t, deskSizes{loops: 1, requests: 64, replies: 64, hold: true})
	d.run()
	l := &simLoop{d: d, todo: []offer{acquireOf(eventloop.NewSessionID(0, 0, 1), 1, "k", 0, time.Hour)}}
	l.offerAll()
	d.a.do(d.a.stop)
	begin := time.Now()
	(&Server{apply: d.a}).waitInFlight()
	if took := time.Since(begin); took < inFlightTimeout-10*time.Millisecond || took > inFlightTimeout+2*time.Second {
		t.Errorf("waited %v, want 1 s", took)
	}
}
