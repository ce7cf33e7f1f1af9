package eventloop

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// These tests show what gnet does that this package must not rely on, or must guard against. One that fails after an
// upgrade says that a guard may go.

// rough is gnet with as little as possible on top.
type rough struct {
	gnet.BuiltinEventEngine
	engine chan gnet.Engine
	opened chan gnet.Conn
	closed chan gnet.Conn
}

func (r *rough) OnBoot(e gnet.Engine) gnet.Action { r.engine <- e; return gnet.None }

func (r *rough) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	r.opened <- c
	return nil, gnet.None
}

func (r *rough) OnClose(c gnet.Conn, _ error) gnet.Action {
	r.closed <- c
	return gnet.None
}

// A write after OnClose reaches whoever has the descriptor now: sessions must be asked for by name, as find does, and
// TestReplyForTheGone shows that it helps.
func TestGnetWritesToTheNextClient(t *testing.T) {
	// Room for the connections of the test, so that gnet never waits.
	r := &rough{engine: make(chan gnet.Engine, 1), opened: make(chan gnet.Conn, 4), closed: make(chan gnet.Conn, 4)}
	addr := freePort(t, "127.0.0.1")
	ended := make(chan error, 1)
	go func() { ended <- gnet.Run(r, "tcp://"+addr, gnet.WithReusePort(true)) }() // ends with Stop
	engine := <-r.engine
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = engine.Stop(ctx)
		<-ended
	}()
	var first, second net.Conn
	until(t, "the port", 5*time.Second, func() (ok bool) {
		c, err := net.Dial("tcp", addr)
		first = c
		return err == nil
	})
	gone := <-r.opened
	first.Close()
	<-r.closed
	second, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	now := <-r.opened
	if gone.Fd() != now.Fd() {
		t.Skipf("descriptor %d was not used again (%d)", gone.Fd(), now.Fd())
	}
	err = now.EventLoop().Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
		_, _ = gone.Write([]byte("not yours"))
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	_ = second.SetReadDeadline(time.Now().Add(5 * time.Second))
	buf := make([]byte, 16)
	if n, _ := second.Read(buf); string(buf[:n]) != "not yours" {
		t.Errorf("the second client read %q: gnet guards against it now", buf[:n])
	}
}

// Two engines bind one port without an error: one port, one daemon is for the server to see to.
func TestGnetBindsTwice(t *testing.T) {
	first := start(t, nil)
	second := start(t, func(c *Config, _ *fakeHost) { c.Listeners[0].Addr = first.addr })
	second.addr = first.addr
	until(t, "both to be reached", 5*time.Second, func() bool {
		c := first.dial()
		c.send(acquire(1, "k"))
		c.granted(1, "k")
		c.Close()
		return first.e.Stats().Accepted > 0 && second.e.Stats().Accepted > 0
	})
}
