package ceiling

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/bench/frames"
)

const (
	token = "a client token of the test"
	limit = 5 * time.Second
)

func start(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().String()
	l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1) // one result
	go func() {                  // ends with the test's cleanup
		ended <- Run(ctx, Options{Addr: addr, Token: []byte(token), Loops: 2, ReadBuffer: 64 << 10, SendBuffer: 64 << 10})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	for deadline := time.Now().Add(limit); ; {
		c, err := frames.Dial(addr, "", limit)
		if err == nil {
			c.Close()
			return addr
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// Handshake and frames come one byte at a time, or all at once: the replies are the same, in order, and a bad frame
// ends it.
func TestReplies(t *testing.T) {
	addr := start(t)
	for _, piece := range []int{1, 7, 1 << 20} {
		c, err := frames.Dial(addr, "", limit)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		out, err := c.Answer(nil, []byte(token), limit)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, '\n')
		const turns = 100 // more than one write's batch
		for i := range uint64(turns) {
			out = frames.AppendAcquire(out, 0, 1, i|0x0a0a0a00, []byte("seat"))
			out = frames.AppendRelease(out, i, []byte("seat"))
		}
		out = append(out, "Xmore"...)
		for len(out) > 0 {
			n := min(piece, len(out))
			if _, err := c.Write(out[:n]); err != nil {
				t.Fatal(err)
			}
			out = out[n:]
		}
		last := uint64(0)
		for i := range uint64(turns) {
			a, err := c.Next(limit)
			if err != nil || a.Op != frames.Granted || a.Owner != i|0x0a0a0a00 || a.Token <= last || string(a.Text) != "seat" {
				t.Fatalf("pieces of %d, turn %d: %+v, %v; want a grant above %d", piece, i, a, err, last)
			}
			last = a.Token
			if r, err := c.Next(limit); err != nil || r.Op != frames.Released || r.Token != i || string(r.Text) != "seat" {
				t.Fatalf("pieces of %d, turn %d: %+v, %v; want a release", piece, i, r, err)
			}
		}
		if e, err := c.Next(limit); err != nil || e.Op != frames.Error || string(e.Text) != "bad_op" {
			t.Errorf("pieces of %d: %+v, %v; want bad_op", piece, e, err)
		}
		if _, err := c.Next(limit); err == nil {
			t.Errorf("pieces of %d: it goes on after bad_op", piece)
		}
	}
}

func TestWrongToken(t *testing.T) {
	c, err := frames.Open(start(t), "", []byte("another"), limit)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if e, err := c.Next(limit); err != nil || e.Op != frames.Error || string(e.Text) != "auth_failed" {
		t.Errorf("%+v, %v; want auth_failed", e, err)
	}
	if _, err := c.Next(limit); !errors.Is(err, io.EOF) {
		t.Errorf("after auth_failed: %v, want the end", err)
	}
}
