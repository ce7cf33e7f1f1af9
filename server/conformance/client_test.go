package conformance

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/codec"
)

// answerLimit is how long a test waits for what must come at once.
const answerLimit = 10 * time.Second

var clientWires = map[string]codec.ClientWire{
	"v1": codec.ClientV1, "3": codec.ClientV3, "0.3": codec.ClientV03, "0.1": codec.ClientV01,
}

// event is one frame as it came, or the end of the stream.
type event struct {
	raw   []byte // the frame, byte by byte
	token uint64 // of a grant
	at    time.Time
	err   error // the end: io.EOF for an orderly one
}

// client is one connection on one wire, authenticated.
type client struct {
	t    testing.TB
	conn net.Conn
	name string // of the wire
	wire codec.ClientWire
	// hello is what the server said first.
	hello codec.Challenge
	// events has room for all frames that a test leaves unread.
	events chan event
	early  []byte // what came with the end of the handshake
}

// connect opens a connection without a word.
func (in *instance) connect(t testing.TB, wire string) net.Conn {
	t.Helper()
	dialer := net.Dialer{Timeout: answerLimit}
	if in.spread && runtime.GOOS == "linux" { // elsewhere loopback is one address
		n := endings.Add(1)
		dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 1, byte(n>>8), byte(n))}
	}
	conn, err := dialer.Dial("tcp", in.addr[wire])
	if err != nil {
		t.Fatalf("connect to wire %s: %v", wire, err)
	}
	if in.tls {
		conn = tls.Client(conn, trust(t))
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
	return conn
}

// dial opens a connection and authenticates with the instance's token.
func (in *instance) dial(t testing.TB, wire string) *client {
	t.Helper()
	c, err := in.login(t, wire, in.token)
	if err != nil {
		t.Fatalf("handshake on wire %s: %v", wire, err)
	}
	c.listen()
	return c
}

// login opens a connection and authenticates. Nobody reads it yet.
func (in *instance) login(t testing.TB, wire, token string) (*client, error) {
	t.Helper()
	c := &client{t: t, conn: in.connect(t, wire), name: wire, wire: clientWires[wire], events: make(chan event, 1<<16)}
	return c, c.handshake(token, in.fingerprint)
}

func (c *client) handshake(token string, fingerprint [32]byte) error {
	buf := make([]byte, 0, 512)
	read := func() error {
		n, err := c.conn.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		return err
	}
	c.hello.Fingerprint = fingerprint
	for {
		n, err := c.wire.DecodeChallenge(buf, &c.hello)
		if err != nil {
			return err
		}
		if n > 0 {
			c.hello.Nonce = bytes.Clone(c.hello.Nonce)
			buf = buf[n:]
			break
		}
		if err := read(); err != nil {
			return err
		}
	}
	if _, err := c.conn.Write(c.wire.AppendLogin(nil, []byte(token), &c.hello)); err != nil {
		return err
	}
	for {
		n, known, err := c.wire.DecodeOutcome(buf)
		if err != nil {
			return err
		}
		if known {
			c.early = buf[n:]
			return nil
		}
		if err := read(); err != nil {
			return err
		}
	}
}

// listen reads all that comes from now on. It ends with the connection, which the test closes.
func (c *client) listen() {
	go func() {
		buf := make([]byte, 64<<10)
		n := copy(buf, c.early)
		for {
			at := time.Now()
			used := 0
			for used < n {
				var r codec.Reply
				size, err := c.wire.DecodeReply(buf[used:n], &r)
				if err != nil {
					c.events <- event{raw: bytes.Clone(buf[used:n]), at: at, err: err}
					return
				}
				if size == 0 {
					break
				}
				c.events <- event{raw: bytes.Clone(buf[used : used+size]), token: r.Token, at: at}
				used += size
			}
			n = copy(buf, buf[used:n])
			got, err := c.conn.Read(buf[n:])
			if got == 0 && err != nil {
				if n > 0 {
					err = errors.Join(io.ErrUnexpectedEOF, err)
				}
				c.events <- event{raw: bytes.Clone(buf[:n]), at: time.Now(), err: err}
				return
			}
			n += got
		}
	}()
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatalf("wire %s: write: %v", c.name, err)
	}
}

// next is the next frame or the end.
func (c *client) next() event {
	c.t.Helper()
	select {
	case e := <-c.events:
		return e
	case <-time.After(answerLimit):
		c.t.Fatalf("wire %s: nothing came for %v", c.name, answerLimit)
		return event{}
	}
}

// want reads the next frame, which must be this one.
func (c *client) want(frame []byte) event {
	c.t.Helper()
	e := c.next()
	if e.err != nil || !bytes.Equal(e.raw, frame) {
		c.t.Fatalf("wire %s: got %q (%v), want %q", c.name, e.raw, e.err, frame)
	}
	return e
}

// wantEnd reads the end of the stream, which must be an orderly one.
func (c *client) wantEnd() event {
	c.t.Helper()
	e := c.next()
	if e.err == nil || !ended(e.err) || len(e.raw) > 0 {
		c.t.Fatalf("wire %s: got %q (%v), want the end of the stream", c.name, e.raw, e.err)
	}
	return e
}

// ended says whether err is an orderly end: all that the server wrote has been read.
func ended(err error) bool { return errors.Is(err, io.EOF) }

// quiet checks that nothing comes for a while.
func (c *client) quiet(d time.Duration) {
	c.t.Helper()
	select {
	case e := <-c.events:
		c.t.Fatalf("wire %s: got %q (%v), want nothing for %v", c.name, e.raw, e.err, d)
	case <-time.After(d):
	}
}

// grant sends an acquire and returns the token of its grant.
func (c *client) grant(id uint64, wait, lease uint16, key string) uint64 {
	c.t.Helper()
	c.send(c.wire.AppendAcquire(nil, id, wait, lease, []byte(key)))
	e := c.next()
	if e.err != nil || e.token == 0 {
		c.t.Fatalf("wire %s: acquire of %q: got %q (%v), want a grant", c.name, key, e.raw, e.err)
	}
	c.check(e, granted(c.name, 'A', id, e.token, key))
	return e.token
}

// release gives a key back.
func (c *client) release(id, token uint64, key string) {
	c.t.Helper()
	c.send(c.wire.AppendRelease(nil, id, token, []byte(key)))
	c.want(released(c.name, 'R', id, token, key))
}

func (c *client) check(e event, frame []byte) {
	c.t.Helper()
	if !bytes.Equal(e.raw, frame) {
		c.t.Fatalf("wire %s: got %q, want %q", c.name, e.raw, frame)
	}
}

// The frames that a server sends, written from the pages and not by package codec.

func u64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func frame3(op byte, body ...[]byte) []byte {
	b := bytes.Join(body, nil)
	return append(binary.BigEndian.AppendUint16([]byte{op}, uint16(len(b))), b...)
}

func textFrame(op byte, parts ...[]byte) []byte {
	return append(append([]byte{op}, bytes.Join(parts, nil)...), '\n')
}

// granted is A, or S on wire 3.
func granted(wire string, op byte, id, token uint64, key string) []byte {
	switch wire {
	case "3":
		return frame3(op, u64(id), u64(token))
	case "0.1":
		return textFrame('A', u64(token), []byte(key))
	}
	return textFrame('A', u64(token), u64(id), []byte(key))
}

// refused is T or B; on wire 0.1 both are T.
func refused(wire string, op byte, id uint64, key string) []byte {
	switch wire {
	case "3":
		return frame3(op, u64(id))
	case "0.1":
		return textFrame('T', []byte(key))
	}
	return textFrame(op, u64(id), []byte(key))
}

// released is R or N, or G on wire 3.
func released(wire string, op byte, id, token uint64, key string) []byte {
	switch wire {
	case "3":
		return frame3(op, u64(id))
	case "0.1":
		return textFrame(op, []byte(key))
	}
	return textFrame(op, u64(token), []byte(key))
}

// failed is E: with a reason on text wires, with a code on wire 3.
func failed(wire string, id uint64, what string) []byte {
	if wire == "3" {
		return frame3('E', u64(id), []byte{what[0] - '0'})
	}
	return textFrame('E', []byte(what))
}
