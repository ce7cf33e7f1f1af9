package eventloop

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/codec"
)

var twoTokens = [][]byte{[]byte("first token 1234"), []byte("second token 123")}

func (r *rig) dialWith(token string) *client {
	c := r.raw()
	c.send(c.digest(token))
	return c
}

// Each token opens the door, no other does, and the answer says which.
func TestTokens(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(func(c *Config, _ *fakeHost) { c.Tokens = twoTokens })
		for _, token := range twoTokens {
			c := r.dialWith(string(token))
			c.send(acquire(1, "k"))
			c.granted(1, "k")
		}
		for _, token := range []string{"", "x", "first token 1235"} {
			c := r.raw()
			c.send(append(c.digest(token), acquire(2, "no")...))
			c.wantFrame("Eauth_failed")
			c.wantEnd()
		}
		if n := len(r.h.all("acquire")); n != 2 {
			t.Errorf("%d acquires came through, want 2", n)
		}
		st := r.e.Stats()
		if st.HandshakeFailures["wrong_answer"] != 3 || st.Authenticated != 2 {
			t.Errorf("counted %+v", st)
		}
	})
}

// An open server takes any answer of the right form, and no other.
func TestForm(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(nil)
		c := r.raw()
		c.line()
		c.send(append([]byte(strings.Repeat("-", 43)+"\n"), acquire(1, "k")...))
		c.granted(1, "k")
		for _, bad := range []string{"\n", strings.Repeat("a", 42) + "\n", strings.Repeat("a", 44) + "\n",
			strings.Repeat("a", 42) + "=\n", strings.Repeat("a", 257), "A\x00\x0a12345678k\n"} {
			c := r.raw()
			c.line()
			c.send([]byte(bad))
			c.wantFrame("Eauth_failed")
			c.wantEnd()
		}
	})
}

// Accept to the end of authentication takes 10 s at most, however the client spends them; then the end, without a byte.
func TestHandshakeTimeout(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(nil)
		begin := time.Now()
		conn, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		silent, slow := wrap(t, conn), r.raw()
		if r.tls == nil {
			silent.line()
		} else {
			silent.send([]byte{22, 3, 1, 2, 0}) // stalls in the middle of the TLS handshake
		}
		slow.line()
		go func() { // ends when the connection does
			for range time.Tick(time.Second) {
				if _, err := slow.Conn.Write([]byte("a")); err != nil {
					return
				}
			}
		}()
		for _, c := range []*client{silent, slow} {
			_, err := c.in.ReadByte()
			if err == nil {
				t.Errorf("a byte came")
			}
			between(t, "end", time.Since(begin), authTimeout, authTimeout+500*time.Millisecond)
		}
		if n := r.e.Stats().HandshakeFailures["timeout"]; n != 2 {
			t.Errorf("%d time-outs were counted, want 2", n)
		}
	})
}

// New tokens end the connections of those that are gone, and no others.
func TestSetTokens(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(func(c *Config, _ *fakeHost) { c.Tokens = twoTokens })
		a, b := r.dialWith(string(twoTokens[0])), r.dialWith(string(twoTokens[1]))
		for _, c := range []*client{a, b} {
			c.send(acquire(1, "k"))
			c.granted(1, "k")
		}
		r.e.SetTokens([][]byte{[]byte("third token 1234"), twoTokens[1]})
		a.wantEnd()
		b.send(acquire(2, "k"))
		b.granted(2, "k")
		c := r.dialWith(string(twoTokens[0]))
		c.wantFrame("Eauth_failed")
		c = r.dialWith("third token 1234")
		c.send(acquire(3, "k"))
		c.granted(3, "k")
		r.e.SetTokens(nil) // open: both tokens are gone
		b.wantEnd()
		c.wantEnd()
		open := r.dial()
		open.send(acquire(4, "k"))
		open.granted(4, "k")
		r.e.SetTokens(twoTokens)
		open.wantEnd()
	})
}

// From the eleventh wrong answer within a minute on, an address waits for its challenges; others do not.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *Config, _ *fakeHost) { c.Tokens = twoTokens })
	challenge := func() (*client, time.Duration) {
		begin := time.Now()
		c := r.raw()
		_, err := c.in.Peek(1)
		if err != nil {
			t.Fatal(err)
		}
		return c, time.Since(begin)
	}
	for i := range 13 {
		c, d := challenge()
		want := time.Duration(0)
		if i > 10 {
			want = penaltyFirst << (i - 11)
		}
		between(t, "challenge", d, want, want+500*time.Millisecond)
		c.send(c.digest("wrong"))
		c.wantFrame("Eauth_failed")
		c.Close()
	}
	// A right answer is held back too, and is right. What comes before the challenge is kept.
	c, d := challenge()
	between(t, "challenge", d, 4*penaltyFirst, 4*penaltyFirst+500*time.Millisecond)
	c.send(append(c.digest(string(twoTokens[0])), acquire(1, "k")...))
	c.granted(1, "k")
	other := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	conn, err := other.Dial("tcp", r.addr)
	if err != nil {
		t.Skipf("no second loopback address: %v", err)
	}
	begin := time.Now()
	oc := wrap(t, conn)
	oc.line()
	between(t, "challenge of another address", time.Since(begin), 0, 500*time.Millisecond)
}

// Each listener speaks its own wire.
func TestWires(t *testing.T) {
	wires := []codec.Wire{codec.V1, codec.V03, codec.V01, codec.V3}
	var nobody atomic.Bool
	r := start(t, func(c *Config, _ *fakeHost) {
		c.Tokens = twoTokens
		c.Listeners = nil
		for _, w := range wires {
			c.Listeners = append(c.Listeners, Listener{freePort(t, "127.0.0.1"), w})
		}
		c.Identity = func() (uint8, uint8, [32]byte, bool) { return 1, 2, [32]byte{3}, !nobody.Load() }
	})
	for i, w := range wires {
		r.addr = r.cfg.Listeners[i].Addr
		c := r.raw()
		var request []byte
		var g codec.Greeting
		if w.Name() == "3" {
			hello := make([]byte, 28)
			if _, err := io.ReadFull(c.in, hello); err != nil {
				t.Fatal(err)
			}
			if hello[10] != 1 || hello[11] != 2 {
				t.Errorf("hello: % x, want mode 1 and slot 2", hello)
			}
			g = codec.Greeting{Mode: 1, Slot: 2, Fingerprint: [32]byte{3}}
			copy(g.Nonce128[:], hello[12:])
			c.send(w.AppendAnswer(nil, twoTokens[1], &g))
			if b, err := c.in.ReadByte(); err != nil || b != 1 {
				t.Fatalf("result: %d (%v), want 1", b, err)
			}
			request = []byte("A\x00\x0b\x00\x00\x00\x00\x00\x00\x00\x07\x01\x02k")
			c.send(request)
			got := make([]byte, 1+2+16)
			if _, err := io.ReadFull(c.in, got); err != nil || !bytes.HasPrefix(got, []byte("A\x00\x10\x00\x00\x00\x00\x00\x00\x00\x07")) {
				t.Errorf("wire 3: got % x (%v)", got, err)
			}
			continue
		}
		c.send(c.digest(string(twoTokens[0])))
		switch w.Name() {
		case "0.1":
			c.send([]byte("A\x00\x01\x00\x02k\n"))
			got := make([]byte, 1+8+2)
			if _, err := io.ReadFull(c.in, got); err != nil || got[0] != 'A' || got[9] != 'k' {
				t.Errorf("wire 0.1: got %q (%v)", got, err)
			}
		case "0.3":
			c.send([]byte("A\x00\x01\x00\x02\x00\x00\x00\x00\x00\x00\x00\x07k\n"))
			c.granted(7, "k")
		default:
			c.send(acquire(7, "k"))
			c.granted(7, "k")
		}
	}
	nobody.Store(true)
	r.addr = r.cfg.Listeners[3].Addr
	if n, err := r.raw().Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("without an identity: %d bytes (%v)", n, err)
	}
	if len(r.h.all("acquire")) != 4 {
		t.Errorf("the host heard %v", r.h.events)
	}
}
