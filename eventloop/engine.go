// Package eventloop is the client side of the server: it accepts connections on gnet event loops, authenticates them,
// cuts what arrives into requests for a Host and writes the Host's replies in batches. It is the only importer of gnet.
//
// It decides everything that concerns a connection as such: handshake and TLS, time limits, back-pressure, the cap on
// connections, how one is closed. It does not know what a lock is, what a reply means (but that a grant that was never
// handed to the socket layer must be given back), or which node leads.
//
// A session is one connection. It belongs to one loop for its life, and all its state is touched on that loop alone. There
// is no goroutine for a session, except while its TLS handshake runs. Four rules hold everywhere:
//
//   - Nothing is written to a connection after gnet's OnClose: its descriptor may be another client's by then.
//   - What was given to Conn.Write counts as delivered for ever: gnet calls OnClose first and flushes its buffer after it.
//   - What arrives is always consumed whole; what cannot be decoded yet is kept here, within a bound.
//   - Host is called on the session's loop, and Host.Flush ends every run of calls.
package eventloop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/ticketing-go/ticketing/codec"
)

// Listener is one client port and the wire spoken on it.
type Listener struct {
	Addr string // host:port, port never 0
	Wire codec.Wire
}

// Config is what Start needs. Only Listeners, MaxConnections and Host must be set.
type Config struct {
	Listeners []Listener
	// Loops is the number of event loops; 0: the number of cores, at most 2 on up to 4 cores. Outside Linux it is 1.
	Loops int
	// MaxConnections counts the connections of all listeners. It is lowered, with a line in the log, to what the
	// descriptor limit allows.
	MaxConnections int
	// ReadBufferBytes is the most that is read from one connection at a time; 0: 64 KiB.
	ReadBufferBytes int
	// Tokens are the client tokens; empty: an open server. See SetTokens.
	Tokens [][]byte
	// TLS is nil for plain TCP. Certificates are swapped through its GetCertificate or GetConfigForClient. Set
	// DynamicRecordSizingDisabled: replies already come in batches.
	TLS *tls.Config
	// Identity is what wire 3's hello tells; ok false: such a connection is closed without a byte. Called on any loop.
	// nil: a single node with a zero fingerprint.
	Identity func() (mode, slot uint8, fingerprint [32]byte, ok bool)
	Log      *slog.Logger // nil: slog.Default()
	Host     Host
}

// ErrConfig is a Config that cannot be started.
var ErrConfig = errors.New("eventloop: bad configuration")

// ErrEnded is Err's value when gnet ended without saying why, as it does at EMFILE.
var ErrEnded = errors.New("eventloop: the engine ended by itself")

// Engine is a running set of loops. All its methods may be called from any goroutine.
type Engine struct {
	cfg    Config
	log    *slog.Logger
	base   time.Time // time.Durations called now count from here
	ports  []port
	loops  []*loop // written before Start returns
	starts struct {
		sync.Mutex
		known int           // loops whose gnet handle is known
		all   chan struct{} // closed when all are
	}

	tokens    atomic.Pointer[tokenSet]
	notice    atomic.Pointer[notice]
	penalties *penalties
	lobby     lobby
	handshake chan struct{} // a place for each TLS handshake that computes at a time

	refusing  atomic.Bool
	finishing atomic.Bool
	finish    sync.Once
	ended     chan struct{} // closed when gnet has returned
	done      chan struct{} // closed when it did so by itself
	err       error         // written before ended is closed
	n         counters
}

// port is a listener as gnet names it.
type port struct {
	text  string // IP:port
	wire  codec.Wire
	hello bool // the greeting tells the identity
}

// Start binds all listeners and returns once every loop accepts. Connections may be served, and Host called, before it
// has returned. The error wraps what binding failed with.
func Start(cfg Config) (*Engine, error) {
	if len(cfg.Listeners) == 0 || cfg.Host == nil || cfg.MaxConnections < 1 || cfg.Loops < 0 || cfg.Loops > maxLoops {
		return nil, ErrConfig
	}
	cfg.Loops = PlannedLoops(cfg.Loops)
	if cfg.ReadBufferBytes == 0 {
		cfg.ReadBufferBytes = readBufferBytes
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	e := &Engine{
		cfg: cfg, log: cfg.Log, base: time.Now(),
		penalties: newPenalties(),
		// Handshakes are computation: as many at a time as there are loops leave the loops half of the machine.
		handshake: make(chan struct{}, cfg.Loops),
		ended:     make(chan struct{}), done: make(chan struct{}),
	}
	e.starts.all = make(chan struct{})
	e.tokens.Store(newTokenSet(cfg.Tokens))
	var addrs []string
	for _, l := range cfg.Listeners {
		a, err := resolve(l.Addr)
		if err != nil {
			return nil, fmt.Errorf("eventloop: listen on %s: %w", l.Addr, err)
		}
		if a.Port == 0 || l.Wire == nil {
			return nil, ErrConfig
		}
		e.ports = append(e.ports, port{text: a.String(), wire: l.Wire, hello: l.Wire.Name() == "3"})
		addrs = append(addrs, "tcp://"+a.String())
	}
	e.lobby.limit.Store(int64(connectionCap(cfg.MaxConnections)))
	for i := range cfg.Loops {
		e.loops = append(e.loops, newLoop(e, i))
	}
	go e.run(addrs) // ends with gnet: Finish, or a failure that closes done
	select {
	case <-e.starts.all:
	case <-e.ended:
		return nil, fmt.Errorf("eventloop: listen on %v: %w", addrs, e.err)
	}
	// Counted again: by now the loops have their own descriptors.
	if n := connectionCap(cfg.MaxConnections); n < cfg.MaxConnections {
		e.log.Warn("descriptor limit lowers the connection cap", "configured", cfg.MaxConnections, "cap", n)
		e.lobby.limit.Store(int64(n))
	}
	return e, nil
}

// resolve makes an address of which gnet's listener has the same text. All addresses of the machine are written without a
// host for it: it takes "::" for IPv6 alone, where everybody else means both.
func resolve(addr string) (*net.TCPAddr, error) {
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	if a.IP.Equal(net.IPv6unspecified) {
		a.IP = nil
	}
	if a.IP == nil {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM, 0)
		if err != nil {
			a.IP = net.IPv4zero // a machine without IPv6
			return a, nil
		}
		unix.Close(fd)
	}
	return a, nil
}

// defaultLoops leaves cores for the one goroutine that decides everything, without which loops have nothing to write. One
// loop takes what arrives in its order, whichever connection it comes by; two that share two cores with all else take what
// arrives 50 µs apart in the wrong order now and then (one time in twelve, measured), which fair queues are not for.
func defaultLoops(cores int) int {
	switch {
	case cores <= 2:
		return 1
	case cores <= 4:
		return 2
	default:
		return min(cores/2, maxLoops)
	}
}

func (e *Engine) run(addrs []string) {
	err := gnet.Rotate(&callbacks{e: e}, addrs,
		gnet.WithNumEventLoop(e.cfg.Loops),
		gnet.WithReusePort(true), // accepts one connection at a time, inline: the other mode dies of EMFILE in a burst
		gnet.WithReuseAddr(true), // or a restart fails while TIME_WAIT remains
		gnet.WithReadBufferCap(e.cfg.ReadBufferBytes),
		gnet.WithTCPNoDelay(gnet.TCPNoDelay),
		gnet.WithSocketSendBuffer(sendBufferBytes),
		// No WithTCPKeepAlive: with it gnet loses the error of a bind that failed (v2.9.7, initListener).
		gnet.WithLogger(gnetLog{e.log}),
		gnet.WithTicker(true),
	)
	if err == nil {
		err = ErrEnded // at EMFILE gnet.Rotate returns nil
	}
	e.err = err
	close(e.ended)
	if !e.finishing.Load() {
		close(e.done)
	}
}

// Loops is the number of loops; sessions name them 0..Loops()-1.
func (e *Engine) Loops() int { return len(e.loops) }

// Kick says that replies, or room for requests, wait for a loop. It costs one atomic load while an earlier kick is pending.
func (e *Engine) Kick(loop int) { e.loops[loop].kick() }

// Refuse makes every new connection be closed at once. It cannot be undone.
func (e *Engine) Refuse() { e.refusing.Store(true) }

// Finish says goodbye to the authenticated connections (codec.Stopping, after the replies that are due now), closes the
// others without a byte, waits for the peers to take what is due, 1 s at most or until ctx ends, and stops the loops. Host
// gets Disconnected for every session, unless ctx ends first. The engine has ended when it returns. The error is ctx's, or
// that of an engine which had ended by itself.
func (e *Engine) Finish(ctx context.Context) error {
	var err error
	e.finish.Do(func() { err = e.finishOnce(ctx) })
	return err
}

func (e *Engine) finishOnce(ctx context.Context) error {
	e.refusing.Store(true)
	e.finishing.Store(true)
	e.onLoops(func(l *loop) {
		l.drain()
		for _, s := range l.sessions() {
			if s.state == serving || s.state == faulted {
				out, _ := s.wire.AppendReply(nil, &codec.Reply{Kind: codec.Stopping})
				s.end(out)
			} else if s.state < lingering {
				s.drop()
			}
		}
	})
	left := time.NewTimer(lingerTimeout + 2*tickPeriod)
	defer left.Stop()
	look := time.NewTicker(stallPoll)
	defer look.Stop()
	var err error
wait:
	for e.n.live.Load() > 0 {
		select {
		case <-look.C:
		case <-left.C:
			break wait
		case <-ctx.Done():
			err = ctx.Err()
			break wait
		case <-e.ended:
			break wait
		}
	}
	for _, l := range e.loops {
		// An error that a Runnable returns ends its loop, and that ends gnet: at once, which Engine.Stop does not.
		_ = l.el.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
			return gneterrors.ErrEngineShutdown
		}))
	}
	<-e.ended
	return errors.Join(err, e.Err())
}

// Done is closed when the engine has ended though nobody called Finish: nothing serves any more.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Err says why the engine ended; nil while it runs, and after Finish.
func (e *Engine) Err() error {
	select {
	case <-e.done:
		return e.err
	default:
		return nil
	}
}

// notice is what Notice was last told.
type notice struct {
	leader *codec.Leader
	lead   bool
}

// Notice says that the leader has changed: l (nil: none is known), and whether this node is it. All authenticated sessions
// are told, and those that authenticate later while another node leads (PROTOCOL.md section 6).
func (e *Engine) Notice(l *codec.Leader, lead bool) {
	e.notice.Store(&notice{l, lead})
	r := &codec.Reply{Kind: codec.Notice, Leader: l}
	e.onLoops(func(lp *loop) {
		for _, s := range lp.sessions() {
			if s.state == serving {
				out, _ := s.wire.AppendReply(lp.take(), r)
				s.write(out, 1)
				lp.give(out)
			}
		}
	})
}

// onLoops runs f on every loop, soon.
func (e *Engine) onLoops(f func(*loop)) {
	for _, l := range e.loops {
		_ = l.el.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
			l.enter()
			f(l)
			l.leave()
			return nil
		}))
	}
}

// now is the time on the engine's clock, which only rises.
func (e *Engine) now() time.Duration { return time.Since(e.base) }
