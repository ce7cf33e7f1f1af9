package eventloop

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"

	"github.com/ticketing-go/ticketing/codec"
)

// Who leads is told to all, and to those that come while another leads.
func TestNotice(t *testing.T) {
	r := start(t, nil)
	early := r.dial()
	early.send(acquire(1, "k"))
	early.granted(1, "k")
	r.e.Notice(&codec.Leader{Addr: "a:1"}, false)
	early.wantFrame("La:1")
	late := r.dial()
	late.wantFrame("La:1")
	r.e.Notice(&codec.Leader{Addr: "b:1"}, true)
	early.wantFrame("Lb:1")
	late.wantFrame("Lb:1")
	c := r.dial()
	c.send(acquire(2, "k"))
	c.granted(2, "k")
}

// A reply that ends the connection drops what is due behind it.
func TestEnd(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(func(_ *Config, h *fakeHost) { h.mute = true })
		c := r.dial()
		c.send(acquire(1, "k"))
		until(t, "the acquire", 5*time.Second, func() bool { return len(r.h.all("acquire")) == 1 })
		id := r.h.all("acquire")[0].s
		r.h.say(
			queued{id, codec.Reply{Kind: codec.TimedOut, ID: 1, Key: []byte("k")}},
			queued{id, codec.Reply{Kind: codec.LostProposed, Leader: &codec.Leader{Addr: "a:1"}}},
			queued{id, codec.Reply{Kind: codec.Granted, ID: 9, Token: 1, Key: []byte("k")}},
		)
		c.wantFrame(string([]byte("T\x00\x00\x00\x00\x00\x00\x00\x01k")))
		c.wantFrame("Ma:1")
		c.wantEnd()
		until(t, "Undelivered and Disconnected", 5*time.Second, func() bool {
			return len(r.h.all("undelivered")) == 1 && len(r.h.all("disconnected")) == 1
		})
	})
}

// Refuse turns newcomers away without a byte; Finish says so to those who are authenticated, and to nobody else.
func TestFinish(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(nil)
		served := r.dial()
		served.send(acquire(1, "k"))
		served.granted(1, "k")
		waiting := r.raw()
		if r.tls == nil {
			waiting.line()
		}
		r.e.Refuse()
		late := r.raw()
		if n, err := late.Conn.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("a connection after Refuse got %d bytes (%v)", n, err)
		}
		served.send(acquire(2, "k"))
		served.granted(2, "k")
		begin := time.Now()
		finished := make(chan error, 1)
		go func() { finished <- r.e.Finish(t.Context()) }() // ends with Finish
		served.wantFrame("Enot_active")
		served.wantEnd()
		served.Close()
		if n, err := waiting.Conn.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("an unauthenticated connection got %d bytes (%v)", n, err)
		}
		if err := <-finished; err != nil {
			t.Errorf("Finish: %v", err)
		}
		if d := time.Since(begin); d > 2*time.Second {
			t.Errorf("Finish took %v", d)
		}
		select {
		case <-r.e.Done():
			t.Error("Done is closed though Finish was called")
		default:
		}
		if _, err := net.Dial("tcp", r.addr); err == nil {
			t.Error("the port still takes connections")
		}
	})
}

// A peer that takes nothing does not hold Finish up for longer than 1 s.
func TestFinishDoesNotWait(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	c := r.dial()
	c.send(acquire(1, "k"))
	c.granted(1, "k")
	begin := time.Now()
	if err := r.e.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	between(t, "Finish", time.Since(begin), 0, lingerTimeout+500*time.Millisecond)
	c.wantFrame("Enot_active")
	if _, err := c.frame(); err == nil {
		t.Error("more after the goodbye")
	}
}

func TestStartErrors(t *testing.T) {
	h := &fakeHost{}
	for _, c := range []Config{
		{}, {Host: h, MaxConnections: 1}, {Host: h, Listeners: []Listener{{"127.0.0.1:0", codec.V1}}, MaxConnections: 1},
		{Host: h, Listeners: []Listener{{"127.0.0.1:1", nil}}, MaxConnections: 1},
	} {
		if _, err := Start(c); !errors.Is(err, ErrConfig) {
			t.Errorf("Start(%+v): %v, want ErrConfig", c, err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = Start(Config{Host: h, MaxConnections: 1, Listeners: []Listener{{l.Addr().String(), codec.V1}}})
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Start on a port in use: %v", err)
	}
}

// An engine that ends by itself says so.
func TestDone(t *testing.T) {
	h := &fakeHost{}
	e, err := Start(Config{Listeners: []Listener{{freePort(t, "127.0.0.1"), codec.V1}}, MaxConnections: 1, Host: h})
	if err != nil {
		t.Fatal(err)
	}
	if e.Err() != nil {
		t.Errorf("Err is %v while it runs", e.Err())
	}
	if err := e.loops[0].el.Execute(t.Context(), gnet.RunnableFunc(func(context.Context) error {
		return gneterrors.ErrEngineShutdown // as gnet does at EMFILE
	})); err != nil {
		t.Fatal(err)
	}
	select {
	case <-e.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("Done is not closed")
	}
	if !errors.Is(e.Err(), ErrEnded) {
		t.Errorf("Err is %v, want ErrEnded", e.Err())
	}
	if err := e.Finish(t.Context()); !errors.Is(err, ErrEnded) {
		t.Errorf("Finish after the end: %v, want ErrEnded", err)
	}
}

// A connection is matched with its listener however that was written.
func TestListenAddresses(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost", "0.0.0.0", "", "::1", "::"} {
		_, port, err := net.SplitHostPort(freePort(t, "127.0.0.1"))
		if err != nil {
			t.Fatal(err)
		}
		addr := net.JoinHostPort(host, port)
		if l, err := net.Listen("tcp", addr); err != nil {
			t.Logf("%s cannot be bound here: %v", addr, err)
			continue
		} else {
			l.Close()
		}
		r := start(t, func(c *Config, _ *fakeHost) { c.Listeners[0].Addr = addr })
		r.addr = addr
		if host == "" || host == "0.0.0.0" {
			r.addr = "127.0.0.1:" + port
		}
		for range 4 {
			c := r.dial()
			c.send(acquire(1, "k"))
			c.granted(1, "k")
		}
		if host == "::" {
			r.addr = "127.0.0.1:" + port
			c := r.dial()
			c.send(acquire(1, "k"))
			c.granted(1, "k")
		}
	}
}

// What a Host refused is offered again, and the one who makes room is woken though nothing was taken.
func TestRefusalIsFlushed(t *testing.T) {
	flushed := make(chan int, 100) // more than the test flushes
	h := &flushHost{fakeHost: &fakeHost{noRoom: true}, flushed: flushed}
	r := start(t, func(c *Config, f *fakeHost) { h.fakeHost = f; f.noRoom = true; c.Host = h })
	c := r.dial()
	c.send(acquire(1, "k"))
	select {
	case <-flushed:
	case <-time.After(5 * time.Second):
		t.Fatal("no Flush after a refusal")
	}
	r.h.set(func() { r.h.noRoom = false })
	c.granted(1, "k")
}

type flushHost struct {
	*fakeHost
	flushed chan int
}

func (h *flushHost) Flush(loop int) {
	h.flushed <- loop
	h.fakeHost.Flush(loop)
}
