package eventloop

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"
)

// One connection too many is let to its TLS handshake and then closed without a byte, so that its client sees a full server
// and not a broken one; only a few at a time are, and none that says nothing.
func TestTurnedAwayAfterTheHandshake(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(func(c *Config, _ *fakeHost) { c.MaxConnections = 2 })
		if r.tls == nil {
			return // TestConnectionCap
		}
		for i := range 2 {
			c := r.dial()
			c.send(acquire(uint64(i), "k"))
			c.granted(uint64(i), "k")
		}
		for i := range 3 {
			raw, err := net.Dial("tcp", r.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			_ = raw.SetDeadline(time.Now().Add(10 * time.Second))
			c := tls.Client(raw, r.tls)
			if err := c.Handshake(); err != nil {
				t.Fatalf("connection %d too many: handshake: %v", i, err)
			}
			if b, err := io.ReadAll(c); len(b) != 0 || err != nil {
				t.Fatalf("connection %d too many: got %q (%v), want a silent close", i, b, err)
			}
		}
		var silent []net.Conn
		for range 4 * maxTurned {
			c, err := net.Dial("tcp", r.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			silent = append(silent, c)
		}
		begin := time.Now()
		for i, c := range silent {
			_ = c.SetDeadline(begin.Add(10 * time.Second))
			if b, err := io.ReadAll(c); len(b) != 0 {
				t.Fatalf("silent connection %d got %q (%v)", i, b, err)
			}
		}
		if took := time.Since(begin); took > turnTimeout+2*time.Second {
			t.Errorf("silent connections too many were closed after %v, want at most %v", took, turnTimeout)
		}
		until(t, "the places to be given back", 5*time.Second, func() bool { return r.e.Stats().Connections == 2 })
	})
}

// A client that has connected and left keeps nobody out, though its loop may not have seen that yet.
func TestAHangUpMakesRoomAtOnce(t *testing.T) {
	r := start(t, func(c *Config, _ *fakeHost) { c.MaxConnections = 1 })
	for i := range 200 {
		probe, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		probe.Close()
		c := r.dial()
		c.send(acquire(uint64(i), "k"))
		c.granted(uint64(i), "k")
		c.Close()
		until(t, "the client to leave", 5*time.Second, func() bool { return r.e.Stats().Connections == 0 })
	}
}
