package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ticketing-go/ticketing/bench/daemon"
	"github.com/ticketing-go/ticketing/bench/frames"
)

const (
	replyLimit   = 10 * time.Second
	leaseSeconds = 1   // of a key that nobody releases
	sources      = 250 // loopback addresses that connections come from
	keysAtOnce   = 64  // keys in flight on a connection
)

// How a connection ends.
const (
	closeAfterGrant   = iota // FIN; the key is held until its lease ends
	resetAfterGrant          // RST; likewise
	closeAfterRelease        // FIN, with nothing held
	resetUnread              // RST behind the acquire, whose grant may find nobody
	endings
)

// churn runs cycles connections and then acquires and releases keys, workers at a time.
func churn(ctx context.Context, d *daemon.Process, cycles, keys, workers int) error {
	var number atomic.Int64
	err := inParallel(workers, func(int) error {
		for ctx.Err() == nil {
			i := int(number.Add(1)) - 1
			if i >= cycles {
				return nil
			}
			if err := cycle(d, i); err != nil {
				return fmt.Errorf("cycle %d: %w", i, err)
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	return inParallel(workers, func(w int) error {
		return keysOfOne(ctx, d, keys*w/workers, keys*(w+1)/workers)
	})
}

// inParallel runs f for 0..n-1, each on a goroutine that ends with it, and returns the first error by number.
func inParallel(n int, f func(int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// cycle is the life of one connection, from an address of its own.
func cycle(d *daemon.Process, i int) error {
	c, err := frames.Dial(d.Addr, fmt.Sprintf("127.0.0.%d", 2+i%sources), replyLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	out, err := c.Answer(nil, []byte(d.Token), replyLimit)
	if err != nil {
		return err
	}
	key := fmt.Appendf(nil, "cycle-%d", i)
	if _, err := c.Write(frames.AppendAcquire(out, 0, leaseSeconds, uint64(i), key)); err != nil {
		return err
	}
	if i%endings == resetUnread {
		c.Reset()
		return nil
	}
	r, err := c.Next(replyLimit)
	if err != nil {
		return err
	}
	if r.Op != frames.Granted || r.Owner != uint64(i) || string(r.Text) != string(key) {
		return fmt.Errorf("%w: %c %q", frames.ErrAnswer, r.Op, r.Text)
	}
	switch i % endings {
	case closeAfterRelease:
		return c.ReleaseKey(key, r.Token, replyLimit)
	case resetAfterGrant:
		c.Reset()
	}
	return nil
}

// keysOfOne acquires and releases the keys numbered from..to-1 on one connection.
func keysOfOne(ctx context.Context, d *daemon.Process, from, to int) error {
	c, err := frames.Open(d.Addr, "", []byte(d.Token), replyLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	tokens := make([]uint64, keysAtOnce)
	for ; from < to && ctx.Err() == nil; from += keysAtOnce {
		n := min(keysAtOnce, to-from)
		var out []byte
		for i := range n {
			out = frames.AppendAcquire(out, 0, 250, uint64(i), fmt.Appendf(nil, "key-%d", from+i))
		}
		if err := exchange(c, out, n, frames.Granted, func(r frames.Reply) { tokens[r.Owner%keysAtOnce] = r.Token }); err != nil {
			return err
		}
		out = out[:0]
		for i := range n {
			out = frames.AppendRelease(out, tokens[i], fmt.Appendf(nil, "key-%d", from+i))
		}
		if err := exchange(c, out, n, frames.Released, func(frames.Reply) {}); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// exchange sends out and takes n replies, which must be of one kind.
func exchange(c *frames.Conn, out []byte, n int, want frames.Op, take func(frames.Reply)) error {
	if _, err := c.Write(out); err != nil {
		return err
	}
	for range n {
		r, err := c.Next(replyLimit)
		if err != nil {
			return err
		}
		if r.Op != want {
			return fmt.Errorf("%w: %c %q, want %c", frames.ErrAnswer, r.Op, r.Text, want)
		}
		take(r)
	}
	return nil
}
