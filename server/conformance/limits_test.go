package conformance

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// crowd sends acquires one by one and finds what came at once.
type crowd struct {
	c      *client
	first  uint64 // its acquires have ids above that, which no other has: on wire 0.3 it would be the same acquire
	nextID uint64
}

func newCrowd(c *client) *crowd {
	first := uint64(endings.Add(1)) << 20
	return &crowd{c, first, first}
}

// acquire sends one acquire and says what came at once: 'A', 'B' (or T on 0.1), or 0: it waits. A key of its own behind it
// tells when it has been taken.
func (d *crowd) acquire(t *testing.T, wait uint16, key string) byte {
	t.Helper()
	d.nextID++
	id := d.nextID
	d.c.send(d.c.wire.AppendAcquire(nil, id, wait, 30, []byte(key)))
	// A release is answered at once, and behind it.
	d.c.send(d.c.wire.AppendRelease(nil, 1<<50, 1<<60, []byte("fence")))
	fence := released(d.c.name, 'N', 1<<50, 1<<60, "fence")
	got := byte(0)
	for {
		e := d.c.next()
		if e.err != nil {
			t.Fatalf("acquire of %q: %v", key, e.err)
		}
		if string(e.raw) == string(fence) {
			return got
		}
		switch {
		case e.token > 0:
			d.c.check(e, granted(d.c.name, 'A', id, e.token, key))
			got = 'A'
		case string(e.raw) == string(refused(d.c.name, 'B', id, key)):
			got = 'B'
		default:
			t.Fatalf("acquire of %q: got %q", key, e.raw)
		}
	}
}

// PROTOCOL.md section 5: waiters per key have no hysteresis; on 0.1 the definite no is a T.
func TestWaitersPerKey(t *testing.T) {
	t.Parallel()
	for _, w := range wires {
		t.Run(w, func(t *testing.T) {
			t.Parallel()
			in := start(t, "MAX_WAITERS=3")
			holder := in.dial(t, w)
			token := holder.grant(1, 1, 30, "k")
			d := newCrowd(in.dial(t, w))
			again := func() byte { // wire 0.1 answers one connection's acquires of one key in their order
				return newCrowd(in.dial(t, w)).acquire(t, 30, "k")
			}
			for i := range 3 {
				if got := d.acquire(t, 30, "k"); got != 0 {
					t.Fatalf("waiter %d of 3: got %c at once", i+1, got)
				}
			}
			for range 3 {
				if got := again(); got != 'B' {
					t.Fatalf("waiter 4 of 3: got %c, want B", got)
				}
			}
			holder.release(2, token, "k")
			e := d.c.next()
			d.c.check(e, granted(w, 'A', d.first+1, e.token, "k"))
			if got := again(); got != 0 {
				t.Errorf("with one place free again: got %c at once, want it to wait", got)
			}
			if got := again(); got != 'B' {
				t.Errorf("full again: got %c, want B", got)
			}
			if got := d.acquire(t, 30, "other"); got != 'A' {
				t.Errorf("another key: got %c, want A", got)
			}
		})
	}
}

// Waiters in all: the gate closes at 90 % and opens below 75 %; a free key is granted all the while.
func TestWaitersInAll(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ limit, closes, opensBelow int }{{20, 18, 15}, {10, 9, 8}, {7, 6, 6}, {2, 1, 1}, {1, 1, 1}} {
		t.Run(fmt.Sprint(c.limit), func(t *testing.T) {
			t.Parallel()
			in := start(t, fmt.Sprintf("MAX_TOTAL_WAITERS=%d", c.limit))
			holder, watch := in.dial(t, "v1"), newCrowd(in.dial(t, "v1"))
			holder.grant(1, 1, 60, "k")
			var waiting []*client
			join := func() byte {
				d := newCrowd(in.dial(t, "v1"))
				got := d.acquire(t, 60, "k")
				if got == 0 {
					waiting = append(waiting, d.c)
				}
				return got
			}
			for i := range c.closes {
				if got := join(); got != 0 {
					t.Fatalf("waiter %d: got %c, want it to wait", i+1, got)
				}
			}
			refusedNow := func() {
				t.Helper()
				if got := join(); got != 'B' {
					t.Fatalf("%d waiters: got %q, want B", len(waiting), got)
				}
			}
			refusedNow()
			if got := watch.acquire(t, 5, "free"); got != 'A' {
				t.Errorf("a free key with the gate closed: got %c, want A", got)
			}
			for len(waiting) > c.opensBelow-1 {
				refusedNow()
				leave := waiting[len(waiting)-1]
				waiting = waiting[:len(waiting)-1]
				leave.conn.Close()
				left(t, in, len(waiting))
			}
			if got := join(); got != 0 {
				t.Errorf("%d waiters, gate closed at %d: got %c, want it to wait", len(waiting), c.closes, got)
			}
		})
	}
}

// left waits until the metrics page tells that many waiters.
func left(t *testing.T, in *instance, waiters int) {
	t.Helper()
	eventually(t, answerLimit, fmt.Sprintf("%d waiters", waiters), func() bool {
		return in.metric(t, "ticketing_waiters") == float64(waiters)
	})
}

// Active keys in single mode: B for a new key while the gate is closed, active ones go on.
func TestActiveKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ limit, closes, opensBelow int }{{20, 18, 15}, {10, 9, 8}, {2, 1, 1}, {1, 1, 1}} {
		for _, w := range wires {
			t.Run(fmt.Sprintf("%s/%d", w, c.limit), func(t *testing.T) {
				t.Parallel()
				in := start(t, fmt.Sprintf("MAX_KEYS=%d", c.limit))
				a, d := in.dial(t, w), newCrowd(in.dial(t, w))
				var tokens []uint64
				for i := range c.closes {
					tokens = append(tokens, a.grant(1, 5, 60, fmt.Sprintf("k%d", i)))
				}
				if got := d.acquire(t, 30, "k0"); got != 0 {
					t.Errorf("an active key with the gate closed: got %c, want it to wait", got)
				}
				for i := c.closes - 1; i >= c.opensBelow-1; i-- {
					if got := d.acquire(t, 30, "new"); got != 'B' {
						t.Fatalf("%d keys: a new key got %q, want B", i+1, got)
					}
					a.release(2, tokens[i], fmt.Sprintf("k%d", i))
					if i == 0 { // handed over: still active
						e := d.c.next()
						d.c.check(e, granted(w, 'A', d.first+1, e.token, "k0"))
						d.c.release(3, e.token, "k0")
					}
				}
				if got := d.acquire(t, 30, "new"); got != 'A' {
					t.Errorf("%d keys: a new key got %q, want A", c.opensBelow-1, got)
				}
			})
		}
	}
}

// A set counts as one waiter in all and as one in each queue, and each new key of it as an active key.
func TestSetsCount(t *testing.T) {
	t.Parallel()
	in := start(t, "MAX_WAITERS=1", "MAX_KEYS=10")
	a := in.dial(t, "3")
	set := func(id uint64, wait byte, keys ...string) {
		b := []byte{byte(len(keys))}
		for _, k := range keys {
			b = append(append(b, byte(len(k))), k...)
		}
		a.send(frame3('S', u64(id), []byte{wait, 30}, b))
	}
	set(1, 0, "a", "b")
	e := a.next()
	a.check(e, granted("3", 'S', 1, e.token, ""))
	set(2, 30, "b", "c") // waits: one place in the queue of b and of c; c is active
	set(3, 30, "c", "d")
	a.want(refused("3", 'B', 3, ""))
	a.send(a.wire.AppendAcquire(nil, 4, 30, 30, []byte("b")))
	a.want(refused("3", 'B', 4, ""))
	if keys, waiters := in.metric(t, "ticketing_keys"), in.metric(t, "ticketing_waiters"); keys != 3 || waiters != 1 {
		t.Errorf("%v keys and %v waiters, want 3 and 1", keys, waiters)
	}
}

// The last token is 2^64-2; then whoever would be granted gets B.
func TestTokensRunOut(t *testing.T) {
	t.Parallel()
	for _, w := range wires {
		t.Run(w, func(t *testing.T) {
			t.Parallel()
			in := start(t, "FIRST_TOKEN=18446744073709551613")
			a := in.dial(t, w)
			for i, want := range []uint64{1<<64 - 3, 1<<64 - 2} {
				if got := a.grant(1, 1, 30, fmt.Sprint("k", i)); got != want {
					t.Fatalf("token %d, want %d", got, want)
				}
			}
			a.send(a.wire.AppendAcquire(nil, 2, 1, 30, []byte("k2")))
			a.want(refused(w, 'B', 2, "k2"))
			a.release(3, 1<<64-2, "k1")
		})
	}
}

// Acquires and releases far beyond what is in flight at once, by one connection that reads: nothing is lost or refused but
// with B, and no release at all.
func TestFloodOfOneReader(t *testing.T) {
	t.Parallel()
	in := start(t)
	for _, w := range wires {
		t.Run(w, func(t *testing.T) {
			t.Parallel()
			c := in.dial(t, w)
			const n = 6000
			done := make(chan struct{})
			var sent atomic.Uint64
			go func() { // ends with the writes, or with the connection
				defer close(done)
				for i := range uint64(n) {
					sent.Store(i)
					var b []byte
					b = c.wire.AppendRelease(b, 1+i, 1<<60, []byte("nobody"))
					if _, err := c.conn.Write(b); err != nil {
						return
					}
				}
			}()
			begin := time.Now()
			for i := range uint64(n) {
				select {
				case e := <-c.events:
					c.check(e, released(w, 'N', 1+i, 1<<60, "nobody"))
				case <-time.After(answerLimit):
					_, body := in.page("/metrics")
					t.Fatalf("after %d of %d replies nothing came for %v; %d were sent; %s", i, n, answerLimit, sent.Load(), body)
				}
			}
			<-done
			t.Logf("%d releases in %v", n, time.Since(begin))
		})
	}
}

// A client that does not read is closed as slow 5 s after the kernel has taken nothing more, and others do not notice.
func TestSlowReaderIsClosed(t *testing.T) {
	t.Parallel()
	in := start(t)
	slow, err := in.login(t, "v1", "")
	if err != nil {
		t.Fatal(err)
	}
	other := in.dial(t, "v1")
	frame := slow.wire.AppendRelease(nil, 0, 1<<60, make128())
	begin := time.Now()
	_ = slow.conn.SetWriteDeadline(time.Now().Add(40 * time.Second))
	for err == nil {
		_, err = slow.conn.Write(frame)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("closed after %v", took)
	}
	eventually(t, answerLimit, "closed as slow", func() bool {
		return in.metric(t, `ticketing_connections_closed_total{reason="slow"}`) == 1
	})
	other.grant(1, 1, 5, "k")
}

func make128() []byte {
	b := make([]byte, 128)
	for i := range b {
		b[i] = 'x'
	}
	return b
}

// WIRES.md section 5.2 and PROTOCOL.md section 5: what is held back for a 0.1 client is bounded. Who sends on and on behind
// an acquire that waits is closed as slow; others are served.
func TestHeldBackAnswersAreBounded(t *testing.T) {
	t.Parallel()
	in := start(t, "MAX_WAITERS=1")
	holder, other := in.dial(t, "v1"), in.dial(t, "v1")
	token := holder.grant(1, 1, 30, "k")
	greedy := in.dial(t, "0.1")
	one := greedy.wire.AppendAcquire(nil, 1, 0, 30, []byte("k"))
	greedy.send(one)
	for i := range 4 { // in parts, that none is refused for what is in flight
		greedy.send(bytes.Repeat(one, 1024))
		greedy.grant(2, 1, 30, fmt.Sprint("fence", i))
	}
	greedy.send(one)
	greedy.wantEnd()
	other.grant(3, 1, 30, "free")
	holder.release(1, token, "k")
}
