// Package ceiling is the reference that the product is measured against: the same event loops, handshake and frames, and
// no lock behind them. Every acquire is granted and every release confirmed at once, on the loop that has read it. What
// the product costs above this is what rings, apply goroutine and lock table cost.
//
// It refuses to know keys, holders and time: it grants one key to any number, and must never serve anybody. Its code
// runs on gnet's loops; each loop has its own scratch buffer and token counter.
package ceiling

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"

	"github.com/ticketing-go/ticketing/codec"
)

// batch is how many replies go into one write, as in the product (PROTOCOL.md section 5).
const batch = 64

// Options are those of the product's loops that a fair reference shares.
type Options struct {
	Addr       string     // IP:port
	Token      []byte     // client token; empty: any well-formed answer is right
	Loops      int        // event loops; GOMAXPROCS is set to the cores and as many
	ReadBuffer int        // bytes, one buffer a loop
	SendBuffer int        // bytes, SO_SNDBUF
	Wire       codec.Wire // nil: V1
}

// Run serves until ctx ends. It sets GOMAXPROCS for the process.
func Run(ctx context.Context, o Options) error {
	if o.Loops < 1 {
		return errors.New("ceiling: no loops")
	}
	runtime.GOMAXPROCS(runtime.NumCPU() + o.Loops)
	if o.Wire == nil {
		o.Wire = codec.V1
	}
	s := &server{wire: o.Wire, token: o.Token, loops: make(map[gnet.EventLoop]*loop, o.Loops), booted: make(chan gnet.Engine, 1)}
	ended := make(chan error, 1) // one result, which nobody may wait for
	go func() {                  // ends when the engine is stopped below, or fails
		ended <- gnet.Run(s, "tcp://"+o.Addr, gnet.WithNumEventLoop(o.Loops), gnet.WithReusePort(true), gnet.WithReuseAddr(true),
			gnet.WithReadBufferCap(o.ReadBuffer), gnet.WithSocketSendBuffer(o.SendBuffer), gnet.WithTCPKeepAlive(15*time.Second),
			gnet.WithLogLevel(logging.FatalLevel))
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("ceiling: engine ended: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	select {
	case engine := <-s.booted:
		return engine.Stop(stop)
	case <-stop.Done():
		return stop.Err()
	}
}

type server struct {
	gnet.BuiltinEventEngine
	wire   codec.Wire
	token  []byte
	booted chan gnet.Engine // filled once
	nonces atomic.Uint64

	mu    sync.Mutex
	loops map[gnet.EventLoop]*loop
}

// loop is what the sessions of one event loop share.
type loop struct {
	out     []byte
	request codec.Request
	reply   codec.Reply
	index   uint64
	granted uint64
}

// session is one connection; only its loop touches it.
type session struct {
	*loop
	greeting      codec.Greeting
	authenticated bool
	part          [codec.MaxHandshakeLine + 1]byte // an unfinished line or frame
	npart         int
}

const _ uint = codec.MaxHandshakeLine - codec.MaxTextFrame // part holds a frame too

func (s *server) OnBoot(engine gnet.Engine) gnet.Action {
	s.booted <- engine
	return gnet.None
}

func (s *server) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	s.mu.Lock()
	l := s.loops[c.EventLoop()]
	if l == nil {
		l = &loop{index: uint64(len(s.loops))}
		s.loops[c.EventLoop()] = l
	}
	s.mu.Unlock()
	ss := &session{loop: l}
	var nonce [8]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return nil, gnet.Close
	}
	binary.BigEndian.PutUint64(nonce[:], binary.BigEndian.Uint64(nonce[:])^s.nonces.Add(1))
	copy(ss.greeting.Nonce48[:], nonce[2:])
	copy(ss.greeting.Nonce128[:], nonce[:])
	ss.greeting.Slot, ss.greeting.Fingerprint = 255, codec.SingleFingerprint()
	c.SetContext(ss)
	return s.wire.AppendGreeting(nil, &ss.greeting), gnet.None
}

func (s *server) OnTraffic(c gnet.Conn) gnet.Action {
	ss := c.Context().(*session)
	buf, err := c.Next(-1)
	if err != nil {
		return gnet.Close
	}
	for ss.npart > 0 && len(buf) > 0 {
		// The start of a line or frame is here from an earlier read: finish it in the session's own room.
		had := ss.npart
		ss.npart += copy(ss.part[had:], buf)
		used, action := s.take(c, ss, ss.part[:ss.npart], true)
		if action != gnet.None {
			return action
		}
		if used == 0 {
			return gnet.None // all of buf fitted, for a longer one is an error
		}
		ss.npart = 0
		buf = buf[used-had:]
	}
	used, action := s.take(c, ss, buf, false)
	if action != gnet.None {
		return action
	}
	ss.npart = copy(ss.part[:], buf[used:])
	return gnet.None
}

// take serves the whole lines and frames in buf, or only the first, and says how many bytes they took.
func (s *server) take(c gnet.Conn, ss *session, buf []byte, first bool) (used int, action gnet.Action) {
	if !ss.authenticated {
		answer, n, err := s.wire.DecodeAnswer(buf)
		if err == nil && n == 0 {
			return 0, gnet.None
		}
		if err != nil || !s.right(ss, answer) {
			c.Write(s.wire.AppendRefused(nil))
			return 0, gnet.Close
		}
		ss.authenticated = true
		if accepted := s.wire.AppendAccepted(nil); len(accepted) > 0 {
			c.Write(accepted)
		}
		if first {
			return n, gnet.None
		}
		used = n
	}
	l := ss.loop
	for due := 0; ; due++ {
		n, err := s.wire.Decode(buf[used:], &l.request)
		if err != nil {
			l.out = s.wire.AppendFault(l.out, err.(*codec.FrameError).Reason)
			action = gnet.Close
		}
		if n > 0 {
			used += n
			l.answer(s.wire)
		}
		if n == 0 || due == batch-1 || first {
			if len(l.out) > 0 {
				c.Write(l.out)
				l.out = l.out[:0]
			}
			due = -1
		}
		if n == 0 || first {
			return used, action
		}
	}
}

// answer appends the reply to the decoded request.
func (l *loop) answer(wire codec.Wire) {
	r := &l.reply
	switch l.request.Op {
	case codec.Acquire:
		l.granted++
		*r = codec.Reply{Kind: codec.Granted, ID: l.request.ID, Token: l.granted<<8 | l.index, Key: l.request.Key}
	case codec.Release:
		*r = codec.Reply{Kind: codec.Released, ID: l.request.ID, Token: l.request.Token, Key: l.request.Key}
	default:
		return
	}
	l.out, _ = wire.AppendReply(l.out, r)
}

func (s *server) right(ss *session, answer []byte) bool {
	if len(s.token) == 0 {
		return true
	}
	return subtle.ConstantTimeCompare(answer, s.wire.AppendAnswer(nil, s.token, &ss.greeting)) == 1
}
