package eventloop

import (
	"bytes"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/codec"
)

func b64(s string) ([]byte, error) { return base64.RawURLEncoding.DecodeString(s) }

// over runs a test on plain TCP and over TLS.
func over(t *testing.T, f func(t *testing.T, start func(func(*Config, *fakeHost)) *rig)) {
	t.Helper()
	for _, secure := range []bool{false, true} {
		name := "plain"
		if secure {
			name = "tls"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, func(change func(*Config, *fakeHost)) *rig {
				return start(t, func(c *Config, h *fakeHost) {
					if secure {
						c.TLS = serverConfig
					}
					if change != nil {
						change(c, h)
					}
				})
			})
		})
	}
}

// A conversation is the same however the client's bytes are cut, a header byte that looks like an LF included.
func TestByteAtATime(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(nil)
		c := r.raw()
		all := c.digest("")
		all = append(all, '\n')
		all = append(all, acquire(0x0a0a0a0a0a0a0a0a, "key")...)
		all = append(all, release(0x0a, "key")...)
		for i := range all {
			c.send(all[i : i+1])
		}
		c.granted(0x0a0a0a0a0a0a0a0a, "key")
		c.wantFrame(string(release(0x0a, "key")[:12]))
	})
}

// Replies of one connection come in the order of its requests, whatever the pieces they arrive in.
func TestPipelined(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		rnd := rand.New(rand.NewPCG(seed, 0))
		r := start(func(_ *Config, h *fakeHost) { h.quiet = true })
		const n = 20000
		c := r.raw()
		all := c.digest("")
		for i := range n {
			all = append(all, acquire(uint64(i), strings.Repeat("k", 1+i%codec.MaxKeyBytes))...)
		}
		// At most 128 KiB ahead of the replies: more could be too slow.
		const ahead = 128 << 10
		var answered atomic.Int64
		more := make(chan struct{}, 1)
		go func() { // ends when all is written
			for sent := 0; sent < len(all); {
				for sent-int(answered.Load()) > ahead {
					<-more
				}
				m := min(len(all)-sent, 1+rnd.IntN(1<<(1+rnd.IntN(16))))
				if _, err := c.Write(all[sent : sent+m]); err != nil {
					t.Errorf("write: %v", err)
					return
				}
				sent += m
			}
		}()
		for i := range n {
			c.granted(uint64(i), strings.Repeat("k", 1+i%codec.MaxKeyBytes))
			answered.Add(int64(len(acquire(0, "")) + 1 + i%codec.MaxKeyBytes))
			select {
			case more <- struct{}{}:
			default:
			}
		}
		st := r.e.Stats()
		if st.Requests != n || st.Replies != n {
			t.Errorf("counted %d requests and %d replies, want %d", st.Requests, st.Replies, n)
		}
	})
}

// What is due for a session that has gone reaches nobody, though another connection has its descriptor and its slot; a
// grant among it is given back.
func TestReplyForTheGone(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(func(c *Config, h *fakeHost) { c.Loops = 1; h.mute = true })
		for i := range 20 {
			old := r.dial()
			old.send(acquire(uint64(i), "k"))
			until(t, "the acquire", 5*time.Second, func() bool { return len(r.h.all("acquire")) == i+1 })
			gone := r.h.all("acquire")[i].s
			old.Close()
			until(t, "Disconnected", 5*time.Second, func() bool { return len(r.h.all("disconnected")) >= 2*i+1 })
			next := r.dial()
			next.send([]byte("\n"))
			reply := codec.Reply{Kind: codec.Granted, ID: uint64(i), Token: 1, Key: []byte("k")}
			late := codec.Reply{Kind: codec.TimedOut, ID: uint64(i), Key: []byte("k")}
			r.h.say(queued{gone, reply}, queued{gone, late})
			until(t, "Undelivered", 5*time.Second, func() bool { return len(r.h.all("undelivered")) == i+1 })
			next.send([]byte("x"))
			next.wantFrame("Ebad_op")
			next.wantEnd()
			next.Close()
			until(t, "the next's end", 5*time.Second, func() bool { return len(r.h.all("disconnected")) == 2*i+2 })
			if ids := r.h.all("disconnected"); ids[len(ids)-1].s.Slot() != gone.Slot() || ids[len(ids)-1].s == gone {
				t.Fatalf("the slot of %x was not reused under another name: %x", gone, ids[len(ids)-1].s)
			}
		}
	})
}

// A connection that breaks in the middle of a batch: what was given to Write counts as delivered, every grant after it is
// given back, and the other connections of the batch get theirs.
func TestBreaksInTheMiddleOfABatch(t *testing.T) {
	r := start(t, func(c *Config, h *fakeHost) { c.Loops = 1; h.mute = true })
	bad, good := r.dial(), r.dial()
	bad.send(acquire(1, "k"))
	until(t, "the acquire", 5*time.Second, func() bool { return len(r.h.all("acquire")) == 1 })
	good.send(acquire(2, "k"))
	until(t, "the acquire", 5*time.Second, func() bool { return len(r.h.all("acquire")) == 2 })
	a, b := r.h.all("acquire")[0].s, r.h.all("acquire")[1].s
	const n = 1000
	var qs []queued
	for i := range n {
		for _, s := range []SessionID{a, b} {
			qs = append(qs, queued{s, codec.Reply{Kind: codec.Granted, ID: uint64(i), Token: uint64(i + 1), Key: []byte("k")}})
		}
	}
	// The loop stands still until the reset has arrived, so that the batch finds a broken connection.
	stop, stopped := make(chan struct{}), make(chan struct{})
	r.e.onLoops(func(*loop) { close(stopped); <-stop })
	<-stopped
	bad.Conn.(*net.TCPConn).SetLinger(0)
	bad.Close()
	r.h.say(qs...)
	close(stop)
	for i := range n {
		good.granted(uint64(i), "k")
	}
	until(t, "Disconnected", 5*time.Second, func() bool { return len(r.h.all("disconnected")) == 1 })
	lost := r.h.all("undelivered")
	if len(lost) < n-repliesPerWrite {
		t.Fatalf("%d of %d grants were given back, want all but one write at most", len(lost), n)
	}
	for i, ev := range lost {
		if want := uint64(n - len(lost) + i); ev.s != a || ev.id != want {
			t.Fatalf("undelivered %d: session %x id %d, want %x %d", i, ev.s, ev.id, a, want)
		}
	}
}

// Frames before a bad one are answered, then the error is said and the connection ends, and the client can read it all
// though it goes on sending; what follows is discarded.
func TestFault(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(nil)
		for _, c := range []struct{ bad, want string }{
			{"x", "Ebad_op"},
			{string(acquire(1, strings.Repeat("k", 192))), "Ebad_key"},
			{"R12345678" + strings.Repeat("k", 184), "Eline_too_long"},
			{string(acquire(1, "a b")), "Ebad_key"},
			{"A\x00\x00" + "12345678k\n", "Ebad_lease"},
		} {
			if len(c.bad) > codec.MaxTextFrame+1 {
				c.want = "Eline_too_long"
			}
			cl := r.dial()
			cl.send(append(acquire(1, "k"), acquire(2, "k")...))
			cl.send([]byte(c.bad))
			more := make(chan struct{})
			go func() { // ends when it is all taken
				defer close(more)
				for range 100 {
					if _, err := cl.Write(bytes.Repeat(acquire(3, "never"), 500)); err != nil {
						t.Errorf("write behind a bad frame: %v", err)
						return
					}
				}
			}()
			<-more
			cl.granted(1, "k")
			cl.granted(2, "k")
			cl.wantFrame(c.want)
			cl.wantEnd()
			cl.Close()
		}
		for _, ev := range r.h.all("acquire") {
			if ev.key == "never" {
				t.Error("a frame behind a bad one was handed over")
			}
		}
		if n := len(r.h.all("leave")); n != 5 {
			t.Errorf("Leave was called %d times, want 5", n)
		}
	})
}

// A host that never says Left is waited for 5 s.
func TestFaultWithoutLeft(t *testing.T) {
	t.Parallel()
	r := start(t, func(_ *Config, h *fakeHost) { h.noLeft = true })
	c := r.dial()
	begin := time.Now()
	c.send([]byte("x"))
	c.wantFrame("Ebad_op")
	between(t, "farewell", time.Since(begin), leaveTimeout, leaveTimeout+500*time.Millisecond)
	c.wantEnd()
}

// between allows for a begin that was noted late on a busy machine.
func between(t testing.TB, what string, got, low, high time.Duration) {
	t.Helper()
	if got < low-200*time.Millisecond || got > high {
		t.Errorf("%s: after %v, want %v..%v", what, got, low, high)
	}
}

// The time of a frame runs from its first byte; it is not renewed by further bytes, and is by further frames.
func TestFrameProgress(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	c := r.dial()
	tick := time.NewTicker(1500 * time.Millisecond)
	defer tick.Stop()
	frame := acquire(1, "k")
	for i := range 3 { // a whole frame and the start of the next each time
		<-tick.C
		c.send(append(frame[min(i, 1):len(frame):len(frame)], frame[0]))
	}
	begin := time.Now()
	for range 2 {
		<-tick.C
		c.send([]byte{0})
	}
	for range 3 {
		c.granted(1, "k")
	}
	c.wantFrame("Ebad_request")
	between(t, "bad_request", time.Since(begin), frameTimeout, frameTimeout+500*time.Millisecond)
	c.wantEnd()
}

// The end of the client's stream is a disconnect at once. Whole frames before it are carried out.
func TestHalfClose(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(func(_ *Config, h *fakeHost) { h.mute = true })
		c := r.dial()
		c.send(append(acquire(1, "k"), release(2, "k")...))
		c.send([]byte("A\x00")) // and an unfinished one, which is nothing
		if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		c.wantEnd()
		until(t, "Disconnected", 2*time.Second, func() bool { return len(r.h.all("disconnected")) == 1 })
		if len(r.h.all("acquire")) != 1 || len(r.h.all("release")) != 1 {
			t.Errorf("carried out: %v", r.h.events)
		}
	})
}

// Without room a session stands still and goes on in order; a pause is not slowness.
func TestPaused(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(func(_ *Config, h *fakeHost) { h.noRoom = true })
		c := r.dial()
		var all []byte
		const n = 30000 // more than the bound of slow connections
		for i := range n {
			all = append(all, acquire(uint64(i), "k")...)
		}
		if len(all) < maxKeptSlow+1<<16 {
			t.Fatalf("%d bytes test nothing", len(all))
		}
		sent := make(chan struct{})
		go func() { c.send(all); close(sent) }() // ends when all is written
		<-sent
		until(t, "all bytes to arrive", 10*time.Second, func() bool { return r.e.Stats().BytesIn >= uint64(len(all)) })
		r.h.set(func() { h := r.h; h.noRoom = false; h.quiet = true })
		for i := range n {
			c.granted(uint64(i), "k")
		}
		if st := r.e.Stats(); st.SlowCloses != 0 || st.Paused == 0 {
			t.Errorf("slow closes %d, pauses %d", st.SlowCloses, st.Paused)
		}
	})
}

// Releases that were kept for room when their connection ended are carried out once there is room; acquires are not; the
// Host hears of the end after them, once.
func TestReleasesOutliveTheConnection(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(func(_ *Config, h *fakeHost) { h.noRoom = true })
		c := r.dial()
		var all []byte
		for i := range uint64(100) {
			all = append(append(all, acquire(i, "k")...), release(i, "k")...)
		}
		c.send(all)
		until(t, "the pause", 5*time.Second, func() bool { return r.e.Stats().Paused > 0 })
		c.Close()
		until(t, "the close", 5*time.Second, func() bool { return r.e.Stats().Connections == 0 })
		if n := len(r.h.all("disconnected")); n != 0 {
			t.Fatalf("Disconnected came %d times before the releases", n)
		}
		r.h.set(func() { r.h.noRoom = false })
		until(t, "Disconnected", 5*time.Second, func() bool { return len(r.h.all("disconnected")) == 1 })
		if a, b := len(r.h.all("acquire")), len(r.h.all("release")); a != 0 || b != 100 {
			t.Errorf("%d acquires and %d releases were carried out, want 0 and 100", a, b)
		}
		if last := r.h.events[len(r.h.events)-1]; last.what != "disconnected" {
			t.Errorf("the last event is %q", last.what)
		}
	})
}

// What a paused connection may send is bounded.
func TestPausedWithoutEnd(t *testing.T) {
	r := start(t, func(_ *Config, h *fakeHost) { h.noRoom = true })
	c := r.dial()
	piece := bytes.Repeat(acquire(1, "k"), 1000)
	var err error
	sent := 0
	for ; err == nil && sent < 4*maxKeptPaused; sent += len(piece) {
		_, err = c.Write(piece)
	}
	if err == nil {
		t.Fatalf("%d bytes were taken", sent)
	}
	until(t, "the close", 5*time.Second, func() bool { return r.e.Stats().Connections == 0 })
	r.h.set(func() { r.h.noRoom = false })
	if st := r.e.Stats(); st.Overruns != 1 || st.SlowCloses != 0 {
		t.Errorf("overruns %d, slow closes %d, want 1 and 0", st.Overruns, st.SlowCloses)
	}
}

// A client that sends for ever and reads nothing is closed, having cost a bounded amount of memory.
func TestNeverReads(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(func(_ *Config, h *fakeHost) { h.quiet = true })
		c := r.dial()
		piece := bytes.Repeat(acquire(1, strings.Repeat("k", 128)), 100)
		var err error
		sent := 0
		for ; err == nil && sent < 64<<20; sent += len(piece) {
			_, err = c.Write(piece)
		}
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Fatalf("after %d bytes: %v", sent, err)
		}
		until(t, "the close", 5*time.Second, func() bool { return r.e.Stats().SlowCloses == 1 })
		if st := r.e.Stats(); st.Pressed == 0 || st.BytesOut > 4<<20 {
			t.Errorf("back-pressure came %d times, %d bytes were given to the socket", st.Pressed, st.BytesOut)
		}
	})
}

// A client that stops reading, with less sent than may be kept, is closed when the kernel has taken nothing for 5 s.
func TestStalls(t *testing.T) {
	t.Parallel()
	r := start(t, func(_ *Config, h *fakeHost) { h.quiet = true })
	c := r.dial()
	var pressed time.Time
	piece := acquire(1, strings.Repeat("k", 128))
	for pressed.IsZero() {
		c.send(piece)
		if r.e.Stats().Pressed > 0 {
			pressed = time.Now()
		}
	}
	until(t, "the close", 10*time.Second, func() bool { return r.e.Stats().SlowCloses == 1 })
	between(t, "close", time.Since(pressed), stallTimeout-300*time.Millisecond, stallTimeout+500*time.Millisecond)
}

// Room that comes a little at a time goes round: one connection that always has more to send keeps nobody else waiting.
func TestRoomGoesRound(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(func(c *Config, h *fakeHost) { c.Loops = 1; h.rationed = true; h.mute = true })
		blocked := func() int { // after all that the loop was told before
			n := make(chan int, 1)
			r.e.onLoops(func(l *loop) { n <- len(l.blocked) })
			return <-n
		}
		const others, ration = 3, 8
		for i := range 1 + others {
			frames := release(1, "modest")
			if i == 0 {
				frames = bytes.Repeat(release(1, "greedy"), 4000)
			}
			r.dial().send(frames)
			until(t, "the pause", 5*time.Second, func() bool { return blocked() == 1+i })
		}
		for range 2 { // the first may have the first ration
			r.h.set(func() { r.h.room = ration })
			blocked()
		}
		taken := map[string]int{}
		for _, e := range r.h.all("release") {
			taken[e.key]++
		}
		if taken["modest"] != others || taken["greedy"] != 2*ration-others {
			t.Errorf("taken of each: %v, want %d of the modest", taken, others)
		}
		r.h.set(func() { r.h.rationed = false })
	})
}

// A client that reads is never closed for what falls due, however much at once, and gets it all.
func TestReadsLate(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(func(c *Config, h *fakeHost) { h.mute = true; h.quiet = true })
		c := r.dial()
		c.send(acquire(1, "k"))
		until(t, "the acquire", 5*time.Second, func() bool { return r.e.Stats().Requests == 1 })
		var id SessionID
		r.h.mu.Lock()
		for s := range r.h.live {
			id = s
		}
		r.h.mu.Unlock()
		const n = 60000
		key := bytes.Repeat([]byte("k"), 128)
		var qs []queued
		for i := range uint64(n) {
			qs = append(qs, queued{id, codec.Reply{Kind: codec.TimedOut, ID: i, Key: key}})
		}
		r.h.say(qs...)
		until(t, "back-pressure", 5*time.Second, func() bool { return r.e.Stats().Pressed > 0 })
		// Requests meanwhile are kept, and carried out when it is over.
		c.send(bytes.Repeat(acquire(2, "k"), 10000))
		until(t, "the kept requests", 5*time.Second, func() bool { return r.e.Stats().BytesIn > 100000 })
		if got := r.e.Stats().Requests; got != 1 {
			t.Errorf("%d requests were decoded under back-pressure", got-1)
		}
		for i := range n {
			got, err := c.frame()
			if err != nil || got[0] != 'T' {
				t.Fatalf("reply %d: got %q (%v)", i, got, err)
			}
		}
		until(t, "the requests", 5*time.Second, func() bool { return r.e.Stats().Requests == 10001 })
		if st := r.e.Stats(); st.SlowCloses != 0 {
			t.Errorf("slow closes: %d", st.SlowCloses)
		}
	})
}

// A connection to which nothing was written for 60 s gets an empty frame.
func TestKeepAlive(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	c.send(acquire(1, "k"))
	c.granted(1, "k")
	c.send(acquire(1, "k")[:1])
	c.send(acquire(1, "k")[1:])
	c.granted(1, "k")
	age := func(by time.Duration) {
		r.e.onLoops(func(l *loop) {
			for _, s := range l.sessions() {
				s.lastWrite -= by
				l.wheel.add(s, s.lastWrite+quietTimeout)
			}
		})
	}
	age(quietTimeout - 300*time.Millisecond)
	begin := time.Now()
	c.wantFrame("")
	between(t, "keep-alive", time.Since(begin), 250*time.Millisecond, 800*time.Millisecond)
	_ = c.SetReadDeadline(time.Now().Add(400 * time.Millisecond))
	if got, err := c.frame(); err == nil {
		t.Errorf("got %q behind the keep-alive, want nothing", got)
	}
}
