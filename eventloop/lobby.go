package eventloop

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
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
	evicted  uint64
}

// admit takes a place for a new connection. When all are taken, the oldest connection that has been unauthenticated for
// longer than evictableAfter gives its own up.
func (b *lobby) admit(now time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open < b.limit.Load() {
		b.open++
		return true
	}
	s := b.first
	if s == nil || now-s.opened <= evictableAfter || b.evicting >= maxEvictions {
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
	return true
}

func (b *lobby) enter(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
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
