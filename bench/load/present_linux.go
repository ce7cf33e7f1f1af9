package load

import (
	"fmt"
	"time"

	"github.com/ticketing-go/ticketing/bench/frames"
)

// chunk is how many requests a connection has in flight while presence is built up. With chunkConns connections at work
// that stays well below the gate at 90 % of 4096 acquires in flight.
const (
	chunk      = 32
	chunkConns = 64
)

// Present is what stays on a server until it is closed.
type Present struct{ *poller }

// Connect opens n authenticated connections that stay idle. The server has authenticated all of them on return: each has
// been answered once.
func Connect(t Target, n int) (*Present, error) {
	p, err := newPoller(t, n)
	if err != nil {
		return nil, err
	}
	left, prefix := n, uniquePrefix()
	for _, c := range p.conns {
		c.out = frames.AppendRelease(c.out, 1, slotKey(prefix, c.index, 0, MinKeyBytes))
		if err := c.flush(); err != nil {
			p.Close()
			return nil, err
		}
	}
	err = p.pollUntil(&left, func(*conn, *frames.Reply) error { left--; return nil })
	if err != nil {
		p.Close()
		return nil, err
	}
	return &Present{p}, nil
}

// pollUntil polls until *left is 0. Every stallTimeout something must come.
func (p *poller) pollUntil(left *int, take func(c *conn, r *frames.Reply) error) error {
	for last, seen := p.now(), *left; *left > 0; {
		if err := p.poll(100*time.Millisecond, take); err != nil {
			return err
		}
		if *left != seen {
			last, seen = p.now(), *left
		} else if p.now()-last > stallTimeout {
			return fmt.Errorf("%w: %d still due", ErrStalled, *left)
		}
	}
	return nil
}

// Hold puts the ballast on the server and returns when all of it is there. What holds and waits leaves the server within
// 250 s; its waiters leave with Close.
func (b Ballast) Hold(t Target) (*Present, error) {
	if b.Conns < 1 || b.Conns > chunkConns || b.KeyBytes < MinKeyBytes || b.Waiters > 0 && b.HotKeys < 1 {
		return nil, fmt.Errorf("load: %+v is out of range", b)
	}
	p, err := newPoller(t, b.Conns)
	if err != nil {
		return nil, err
	}
	prefix := uniquePrefix()
	err = p.hold(prefix+"-h", b.HotKeys, b.KeyBytes)
	if err == nil {
		err = p.wait(prefix+"-h", b)
	}
	if err == nil {
		err = p.hold(prefix+"-k", b.Keys, b.KeyBytes)
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("ballast: %w", err)
	}
	return &Present{p}, nil
}

// numberedKey is key number i of n bytes.
func numberedKey(prefix string, i, n int) []byte {
	key := fmt.Appendf(nil, "%s%07x", prefix, i)
	for len(key) < n {
		key = append(key, '.')
	}
	return key
}

// hold acquires n keys.
func (p *poller) hold(prefix string, n, keyBytes int) error {
	next, left := 0, n
	more := func(c *conn) {
		if next < n {
			c.out = frames.AppendAcquire(c.out, 0, leaseSeconds, uint64(next), numberedKey(prefix, next, keyBytes))
			next++
		}
	}
	for _, c := range p.conns {
		for range chunk {
			more(c)
		}
		if err := c.flush(); err != nil {
			return err
		}
	}
	return p.pollUntil(&left, func(c *conn, r *frames.Reply) error {
		if r.Op != frames.Granted {
			return fmt.Errorf("%w: %c for key %d of %d", ErrRefused, r.Op, n-left, n)
		}
		left--
		more(c)
		return nil
	})
}

// wait queues the waiters. Nothing answers an acquire that waits; a fence behind each chunk, a release of a key that is
// free, is answered when the chunk has taken effect, for requests of one connection do so in order.
func (p *poller) wait(prefix string, b Ballast) error {
	next, fences := 0, 0
	more := func(c *conn) {
		if next == b.Waiters {
			return
		}
		for i := 0; i < chunk && next < b.Waiters; i++ {
			c.out = frames.AppendAcquire(c.out, waitSeconds, leaseSeconds, uint64(next), numberedKey(prefix, next%b.HotKeys, b.KeyBytes))
			next++
		}
		c.out = frames.AppendRelease(c.out, 1, numberedKey(prefix+"f", c.index, b.KeyBytes))
		fences++
	}
	for _, c := range p.conns {
		more(c)
		if err := c.flush(); err != nil {
			return err
		}
	}
	return p.pollUntil(&fences, func(c *conn, r *frames.Reply) error {
		if r.Op != frames.NotHeld {
			return fmt.Errorf("%w: %c for one of the first %d waiters", ErrRefused, r.Op, next)
		}
		fences--
		more(c)
		return nil
	})
}
