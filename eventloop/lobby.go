package eventloop

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// lobby counts the connections of all loops and knows which are not authenticated, oldest first. Any goroutine may call
// it; what a session has for it (before, behind, waiting, evicted) is guarded by mu.
type lobby struct {
	limit atomic.Int64 // most connections

	mu       sync.Mutex
	open     int64 // those that count
	first    *session
	last     *session
	waiting  int
	evicting int // evicted and not yet closed: above the limit
	turned   int // turned away and not yet closed: likewise
	evicted  uint64
}

// admit takes a place for a new connection and lists it as not authenticated. When all are taken, the oldest connection that has been unauthenticated for
// longer than evictableAfter gives its own up.
func (b *lobby) admit(newcomer *session, now time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open < b.limit.Load() {
		b.open++
		b.list(newcomer)
		return true
	}
	s := b.first
	if s != nil && now-s.opened <= evictableAfter {
		s = b.hungUp()
	}
	if s == nil || b.evicting >= maxEvictions {
		return false
	}
	b.unlink(s)
	s.evicted = true
	b.evicting++
	b.evicted++
	l := s.l
	_ = l.el.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
		l.enter()
		s.drop()
		l.leave()
		return nil
	}))
	b.list(newcomer)
	return true
}

// hungUp finds a connection whose client has gone, which its loop has not seen yet: health checks connect and leave, and
// must not keep a client out. The descriptors of listed sessions are open: gnet closes them after closed has been called.
func (b *lobby) hungUp() *session {
	n := 0
	for s := b.first; s != nil && n < maxHangUps; s, n = s.behind, n+1 {
		if goneByPeer(s.c.Fd()) {
			return s
		}
	}
	return nil
}

// goneByPeer says whether the peer of a socket has closed or reset it and left nothing to read.
func goneByPeer(fd int) bool {
	var b [1]byte
	n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err != nil { // a reset is EPIPE once the peer had closed its half
		return err != unix.EAGAIN && err != unix.EINTR
	}
	return n == 0
}

// turnAway takes a place for a connection too many that is let to its TLS handshake: closed in the middle of that, its
// client would see a broken TLS and not a server that is full.
func (b *lobby) turnAway() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.turned >= maxTurned {
		return false
	}
	b.turned++
	return true
}

// list puts s behind the others that are not authenticated; mu is held.
func (b *lobby) list(s *session) {
	s.waiting = true
	b.waiting++
	if s.before = b.last; b.last != nil {
		b.last.behind = s
	} else {
		b.first = s
	}
	b.last = s
}

// leave is called when a session is authenticated; false: it was evicted in that moment.
func (b *lobby) leave(s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.evicted {
		return false
	}
	b.unlink(s)
	return true
}

// closed gives the place of a connection back.
func (b *lobby) closed(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.turned {
		b.turned--
		return
	}
	if s.evicted {
		b.evicting--
		return
	}
	b.unlink(s)
	b.open--
}

func (b *lobby) unlink(s *session) {
	if !s.waiting {
		return
	}
	s.waiting = false
	b.waiting--
	if s.before != nil {
		s.before.behind = s.behind
	} else {
		b.first = s.behind
	}
	if s.behind != nil {
		s.behind.before = s.before
	} else {
		b.last = s.before
	}
	s.before, s.behind = nil, nil
}
