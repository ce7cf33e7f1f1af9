package eventloop

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// secure is the TLS of one session: crypto/tls over an adapter in memory. Its handshake must block (its errors are final),
// so it runs in a goroutine from the first byte of the client on; once it is done, only the loop touches conn, and Read
// answers "would block" where the socket has no more.
//
// The compute of handshakes is limited (Engine.handshake); one that waits for its peer holds no place, so peers that
// stall cannot keep others out. It counts against authTimeout like everything else.
type secure struct {
	s      *session
	conn   *tls.Conn
	local  net.Addr
	remote net.Addr
	run    gnet.Runnable // progress, on the loop

	live   bool   // the handshake is done: on the loop alone
	broken bool   // no close_notify is possible
	cur    []byte // records that came just now, borrowed

	mu      sync.Mutex // guards what follows, until live
	wake    sync.Cond
	in      []byte // records for the handshake, and what came right behind them
	out     []byte // records of the handshake
	started bool
	running bool // progress is under way
	ended   bool
	err     error
	dead    bool
}

func newSecure(s *session, cfg *tls.Config) *secure {
	t := &secure{s: s, local: s.c.LocalAddr(), remote: s.c.RemoteAddr()}
	t.wake.L = &t.mu
	t.conn = tls.Server(t, cfg)
	l := s.l
	t.run = gnet.RunnableFunc(func(context.Context) error {
		l.enter()
		t.progress()
		l.leave()
		return nil
	})
	return t
}

// wouldBlock is what Read returns when the socket has no more. crypto/tls keeps a connection usable after a temporary
// net.Error, and only if it is not wrapped.
type wouldBlock struct{}

func (wouldBlock) Error() string   { return "eventloop: would block" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }

// arrived takes records from the socket, on the loop.
func (t *secure) arrived(buf []byte) {
	if t.live {
		t.pump(buf)
		return
	}
	t.mu.Lock()
	over := len(t.in)+len(buf) > maxKeptCipher
	if !over {
		t.in = append(t.in, buf...)
		t.wake.Signal()
		if !t.started {
			t.started = true
			go t.shake() // ends with the handshake, or by kill
		}
	}
	t.mu.Unlock()
	if over {
		t.s.failed(failedTLS)
		t.s.drop()
	}
}

// shake is the handshake, on its own goroutine.
func (t *secure) shake() {
	places := t.s.l.e.handshake
	places <- struct{}{}
	err := t.conn.Handshake()
	<-places
	t.mu.Lock()
	t.ended, t.err = true, err
	t.progressSoon()
	t.mu.Unlock()
}

func (t *secure) progressSoon() {
	if !t.running {
		t.running = true
		_ = t.s.l.el.Execute(context.Background(), t.run)
	}
}

// progress writes what the handshake has to say and goes live at its end, on the loop.
func (t *secure) progress() {
	t.mu.Lock()
	t.running = false
	out, ended, err := t.out, t.ended, t.err
	t.out = nil
	t.mu.Unlock()
	s := t.s
	if s.state != opening || t.live || t.broken {
		return
	}
	if len(out) > 0 {
		s.send(out, 0)
	}
	switch {
	case s.state != opening || !ended:
	case err != nil:
		s.failed(failedTLS)
		t.broken = true
		s.end(nil) // the alert was written
	case s.turned:
		t.live = true
		s.end(nil)
	default:
		t.live = true
		s.challenge()
		if !s.muted() {
			t.pump(nil) // what came right behind the handshake
		}
	}
}

// pump decrypts all that has come, on the loop.
func (t *secure) pump(buf []byte) {
	s, l := t.s, t.s.l
	if l.plain == nil {
		l.plain = make([]byte, 16<<10) // one record
	}
	t.cur = buf
	for !s.muted() {
		n, err := t.conn.Read(l.plain)
		if n > 0 {
			s.feed(l.plain[:n]) // first: an error may come with it
		}
		if err == nil {
			continue
		}
		if _, again := err.(wouldBlock); again {
			break
		}
		t.flush()
		if err != io.EOF { // a close_notify is io.EOF
			l.n.failed(failedRecord)
			t.broken = true
		}
		s.end(nil) // the peer has said its last: a disconnect
		break
	}
	t.cur = nil
	t.flush()
}

// flush writes what conn itself had to say: alerts and key updates.
func (t *secure) flush() {
	if l := t.s.l; len(l.cipher) > 0 {
		out := l.cipher
		l.cipher = l.cipher[:0]
		if !t.s.muted() {
			t.s.send(out, 0)
		}
	}
}

// seal encrypts one write, on the loop. The result is valid until the next.
func (t *secure) seal(b []byte) []byte {
	_, _ = t.conn.Write(b) // an error: nothing to send, and the next Read ends the session
	l := t.s.l
	out := l.cipher
	l.cipher = l.cipher[:0]
	return out
}

func (t *secure) closeNotify() {
	if t.live && !t.broken {
		_ = t.conn.CloseWrite()
		t.flush()
	}
}

// kill ends a handshake that is under way.
func (t *secure) kill() {
	t.mu.Lock()
	t.dead = true
	t.wake.Signal()
	t.mu.Unlock()
}

// Read gives records to conn: without blocking once live, and blocking on the goroutine of the handshake before.
func (t *secure) Read(p []byte) (int, error) {
	if t.live {
		return t.readLive(p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.in) == 0 && !t.dead {
		places := t.s.l.e.handshake
		t.mu.Unlock()
		<-places // waiting for the peer is no computation
		t.mu.Lock()
		for len(t.in) == 0 && !t.dead {
			t.wake.Wait()
		}
		t.mu.Unlock()
		places <- struct{}{}
		t.mu.Lock()
	}
	if t.dead {
		return 0, io.ErrUnexpectedEOF
	}
	n := copy(p, t.in)
	t.in = t.in[n:]
	return n, nil
}

func (t *secure) readLive(p []byte) (int, error) {
	from := &t.cur
	if len(t.in) > 0 {
		from = &t.in
	}
	if len(*from) == 0 {
		t.in = nil
		return 0, wouldBlock{}
	}
	n := copy(p, *from)
	*from = (*from)[n:]
	return n, nil
}

// Write takes records from conn.
func (t *secure) Write(p []byte) (int, error) {
	if t.live {
		t.s.l.cipher = append(t.s.l.cipher, p...)
		return len(p), nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return 0, net.ErrClosed
	}
	t.out = append(t.out, p...)
	t.progressSoon()
	return len(p), nil
}

// The rest of net.Conn. Closing and time limits are the session's.
func (t *secure) Close() error                     { return nil }
func (t *secure) LocalAddr() net.Addr              { return t.local }
func (t *secure) RemoteAddr() net.Addr             { return t.remote }
func (t *secure) SetDeadline(time.Time) error      { return nil }
func (t *secure) SetReadDeadline(time.Time) error  { return nil }
func (t *secure) SetWriteDeadline(time.Time) error { return nil }
