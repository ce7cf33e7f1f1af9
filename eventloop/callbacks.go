package eventloop

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// callbacks is what gnet calls. OnTick runs on a goroutine of gnet's, OnOpen, OnTraffic and OnClose on the connection's
// loop; OnClose also from inside Conn.Write.
type callbacks struct {
	gnet.BuiltinEventEngine
	e      *Engine
	gnet   gnet.Engine
	ticked bool
}

// probe marks the connection that is sent to a loop at the start to learn its handle: gnet gives it by a connection only.
type probe struct{}

func (cb *callbacks) OnBoot(g gnet.Engine) gnet.Action {
	cb.gnet = g
	return gnet.None
}

func (cb *callbacks) OnTick() (time.Duration, gnet.Action) {
	if !cb.ticked {
		// The first tick comes after all loops are registered, which OnBoot does not.
		cb.ticked = true
		if err := cb.probeLoops(); err != nil {
			cb.e.log.Error("event loops cannot be reached", "err", err)
			return tickPeriod, gnet.Shutdown
		}
	}
	for _, l := range cb.e.loops {
		l.tickSoon()
	}
	return tickPeriod, gnet.None
}

func (cb *callbacks) probeLoops() error {
	for range cb.e.loops {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
		f := os.NewFile(uintptr(fds[0]), "probe")
		c, err := net.FileConn(f)
		f.Close()
		unix.Close(fds[1])
		if err != nil {
			return err
		}
		// gnet's balancer takes the loops in turn; it closes c.
		if _, err := cb.gnet.Register(gnet.NewNetConnContext(gnet.NewContext(context.Background(), probe{}), c)); err != nil {
			return err
		}
	}
	return nil
}

// loop finds, or gives, the loop of a connection.
func (cb *callbacks) loop(c gnet.Conn) *loop {
	e, el := cb.e, c.EventLoop()
	for _, l := range e.loops {
		if l.ready.Load() && l.el == el {
			return l
		}
	}
	e.starts.Lock()
	defer e.starts.Unlock()
	l := e.loops[e.starts.known]
	l.el = el
	l.ready.Store(true)
	if e.starts.known++; e.starts.known == len(e.loops) {
		close(e.starts.all)
	}
	return l
}

func (cb *callbacks) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	l := cb.loop(c)
	if _, ok := c.Context().(probe); ok {
		return nil, gnet.Close
	}
	l.enter()
	defer l.leave()
	if !l.open(c) {
		return nil, gnet.Close
	}
	return nil, gnet.None
}

func (cb *callbacks) OnTraffic(c gnet.Conn) gnet.Action {
	buf, _ := c.Next(-1)
	s, ok := c.Context().(*session)
	if !ok {
		return gnet.Close
	}
	s.l.enter()
	s.l.n.bytesIn.Add(uint64(len(buf)))
	s.arrived(buf)
	s.l.leave()
	return gnet.None
}

func (cb *callbacks) OnClose(c gnet.Conn, _ error) gnet.Action {
	if s, ok := c.Context().(*session); ok {
		s.l.enter()
		s.closed()
		s.l.leave()
	}
	return gnet.None
}

// gnetLog is gnet's logger. Its lines are few and for people who know gnet: all but its errors are debug.
type gnetLog struct{ log *slog.Logger }

func (g gnetLog) Debugf(f string, a ...any) { g.put(slog.LevelDebug, f, a) }
func (g gnetLog) Infof(f string, a ...any)  { g.put(slog.LevelDebug, f, a) }
func (g gnetLog) Warnf(f string, a ...any)  { g.put(slog.LevelDebug, f, a) }
func (g gnetLog) Errorf(f string, a ...any) { g.put(slog.LevelError, f, a) }
func (g gnetLog) Fatalf(f string, a ...any) { g.put(slog.LevelError, f, a) }

func (g gnetLog) put(level slog.Level, f string, a []any) {
	if g.log.Enabled(context.Background(), level) {
		g.log.Log(context.Background(), level, "gnet: "+fmt.Sprintf(f, a...))
	}
}
