package session

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/bench/history"
	"github.com/ticketing-go/ticketing/codec"
)

// script is a server that says what a test tells it to.
type script struct {
	t    *testing.T
	l    net.Listener
	conn net.Conn
	buf  []byte
}

// open starts a server and a session with it.
func open(t *testing.T, d *Dialer) (*script, *Session) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &script{t: t, l: l}
	accepted := make(chan error, 1) // one result: the goroutine never waits
	// Ends when the handshake is over or the listener is closed.
	go func() {
		var err error
		if s.conn, err = l.Accept(); err == nil {
			_, err = s.conn.Write(codec.V1.AppendGreeting(nil, &codec.Greeting{}))
		}
		accepted <- err
	}()
	if d.Log == nil {
		d.Log = history.NewRecorder(0)
	}
	if d.Hints == nil {
		d.Hints = func(string) {}
	}
	d.Patience = 5 * time.Second
	if d.Overdue == 0 {
		d.Overdue = 5 * time.Second
	}
	x, err := d.Dial(l.Addr().String(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close(); s.conn.Close(); l.Close() })
	s.expect(44) // the digest
	return s, x
}

// expect reads n bytes.
func (s *script) expect(n int) []byte {
	s.t.Helper()
	b := make([]byte, n)
	s.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	for got := 0; got < n; {
		m, err := s.conn.Read(b[got:])
		if err != nil {
			s.t.Fatal(err)
		}
		got += m
	}
	return b
}

func (s *script) say(replies ...codec.Reply) {
	s.t.Helper()
	var b []byte
	for i := range replies {
		b, _ = codec.V1.AppendReply(b, &replies[i])
	}
	if _, err := s.conn.Write(b); err != nil {
		s.t.Fatal(err)
	}
}

// ended waits for the outcome of a call.
func ended(t *testing.T, c *Call, want history.Outcome) history.Op {
	t.Helper()
	select {
	case <-c.Done:
	case <-time.After(5 * time.Second):
		t.Fatalf("no outcome, want %v", want)
	}
	if c.Op.Outcome != want {
		t.Errorf("got %v, want %v", &c.Op, want)
	}
	return c.Op
}

const acquireBytes, releaseBytes = 12, 11 // frames of one-byte keys

func acquire(t *testing.T, x *Session, key string) *Call {
	t.Helper()
	c, err := x.Acquire(key, time.Second, 2*time.Second, false)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOutcomes(t *testing.T) {
	d := &Dialer{Settle: time.Hour}
	s, x := open(t, d)
	a, b, c := acquire(t, x, "a"), acquire(t, x, "b"), acquire(t, x, "c")
	if got := s.expect(3 * (acquireBytes + 1)); got[0] != 'A' || got[1] != 1 || got[2] != 2 {
		t.Errorf("got frame %q, want an acquire of wait 1 and lease 2", got)
	}
	s.say(codec.Reply{Kind: codec.Busy, ID: c.Op.Owner, Key: []byte("c")}, codec.Reply{},
		codec.Reply{Kind: codec.Granted, ID: a.Op.Owner, Token: 7, Key: []byte("a")},
		codec.Reply{Kind: codec.TimedOut, ID: b.Op.Owner, Key: []byte("b")})
	if op := ended(t, a, history.Granted); op.Token != 7 || op.Node != 3 || op.Return <= op.Call {
		t.Errorf("got %v, want token 7 from node 3", &op)
	}
	ended(t, b, history.TimedOut)
	ended(t, c, history.Busy)
	r1, _ := x.Release("a", 7)
	r2, _ := x.Release("a", 7)
	s.say(codec.Reply{Kind: codec.Released, Token: 7, Key: []byte("a")}, codec.Reply{Kind: codec.NotHeld, Token: 7, Key: []byte("a")})
	ended(t, r1, history.Released)
	ended(t, r2, history.NotHeld)
	left := acquire(t, x, "d")
	s.conn.Close()
	if op := ended(t, left, history.Unknown); op.Return != history.Never || op.Gone < op.Call {
		t.Errorf("got %v gone %v, want no return and an end", &op, op.Gone)
	}
	if _, err := x.Acquire("e", 0, time.Second, false); err != ErrClosed {
		t.Errorf("after the end: got %v, want %v", err, ErrClosed)
	}
	if h := d.Log.History(); len(h.Ops) != 6 || len(h.Strays) != 0 {
		t.Errorf("got %d operations and strays %v, want 6 and none", len(h.Ops), h.Strays)
	}
}

// M on a connection that stays open answered one request without effect; on one that is closed it may stand for a
// request that a lost leadership left open.
func TestMoved(t *testing.T) {
	moved := codec.Reply{Kind: codec.Moved, Leader: &codec.Leader{Addr: "127.0.0.1:1"}}
	const settle = 50 * time.Millisecond
	for _, c := range []struct {
		name    string
		replies []codec.Reply
		close   bool
		want    history.Outcome
	}{
		{"one M for each", []codec.Reply{moved, moved}, false, history.Refused},
		{"one M for two", []codec.Reply{moved}, false, history.Unknown},
		{"one M for each, then closed", []codec.Reply{moved, moved}, true, history.Unknown},
		{"no leader", []codec.Reply{{Kind: codec.Moved}, {Kind: codec.NotActive}}, false, history.Refused},
	} {
		told := ""
		wait := time.Duration(settle)
		if c.close {
			wait = time.Hour
		}
		s, x := open(t, &Dialer{Settle: wait, Hints: func(addr string) { told = addr }})
		a, b := acquire(t, x, "a"), acquire(t, x, "b")
		s.expect(2 * (acquireBytes + 1))
		s.say(c.replies...)
		if c.close {
			s.conn.Close()
		}
		ended(t, a, c.want)
		ended(t, b, c.want)
		<-x.Gone()
		if c.replies[0].Leader != nil && told != "127.0.0.1:1" {
			t.Errorf("%s: hint %q, want the leader's address", c.name, told)
		}
		if t.Failed() {
			t.Fatal(c.name)
		}
	}
}

// Without a time to settle, M makes what is under way unknown, and the session goes on.
func TestMovedAtOnce(t *testing.T) {
	s, x := open(t, &Dialer{})
	a := acquire(t, x, "a")
	s.say(codec.Reply{Kind: codec.Moved})
	ended(t, a, history.Unknown)
	b := acquire(t, x, "b")
	s.say(codec.Reply{Kind: codec.Granted, ID: b.Op.Owner, Token: 1, Key: []byte("b")})
	ended(t, b, history.Granted)
}

func TestProbeShowsQueued(t *testing.T) {
	s, x := open(t, &Dialer{Settle: time.Hour})
	c, err := x.Acquire("a", time.Second, time.Second, true)
	if err != nil {
		t.Fatal(err)
	}
	got := s.expect(acquireBytes + 1 + 9)
	noop, err := readLine(s)
	if err != nil || got[acquireBytes+1] != 'R' {
		t.Fatalf("got %q and %v behind the acquire, want a release", got, err)
	}
	s.say(codec.Reply{Kind: codec.NotHeld, Token: 1, Key: noop})
	select {
	case <-c.Queued:
	case <-time.After(5 * time.Second):
		t.Fatal("not known to be queued after the answer to what was sent behind it")
	}
	s.say(codec.Reply{Kind: codec.Granted, ID: c.Op.Owner, Token: 1, Key: []byte("a")})
	if op := ended(t, c, history.Granted); op.Queued <= op.Call || op.Queued > op.Return {
		t.Errorf("queued at %v, want between %v and %v", op.Queued, op.Call, op.Return)
	}
}

func readLine(s *script) ([]byte, error) {
	var line []byte
	for !bytes.HasSuffix(line, []byte("\n")) {
		line = append(line, s.expect(1)...)
	}
	return line[:len(line)-1], nil
}

func TestOverdue(t *testing.T) {
	_, x := open(t, &Dialer{Settle: time.Hour, Overdue: 20 * time.Millisecond})
	long := acquire(t, x, "a")
	short, err := x.Release("b", 9)
	if err != nil {
		t.Fatal(err)
	}
	ended(t, short, history.Unanswered)
	ended(t, long, history.Unknown) // its session was given up for the other's sake
}

func TestStrays(t *testing.T) {
	reply := func(r codec.Reply) []byte { b, _ := codec.V1.AppendReply(nil, &r); return b }
	for name, said := range map[string][]byte{ // order does not matter: each is a test of its own
		"grant nobody asked for": reply(codec.Reply{Kind: codec.Granted, ID: 1 << 60, Token: 1, Key: []byte("a")}),
		"release":                reply(codec.Reply{Kind: codec.Released, Token: 5, Key: []byte("a")}),
		"error":                  codec.V1.AppendFault(nil, codec.BadKey),
		"noise":                  []byte("?\n"),
	} {
		d := &Dialer{Settle: time.Hour}
		s, x := open(t, d)
		if _, err := s.conn.Write(said); err != nil {
			t.Fatal(err)
		}
		s.conn.Close()
		<-x.Gone()
		if h := d.Log.History(); len(h.Strays) != 1 || !strings.Contains(h.Strays[0], "node 3") {
			t.Errorf("%s: strays %q, want one", name, h.Strays)
		}
	}
}
