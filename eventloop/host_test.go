package eventloop

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/codec"
)

// event is what a fake Host was told.
type event struct {
	what string // acquire, release, reject, leave, disconnected, undelivered
	s    SessionID
	id   uint64
	key  string
}

type queued struct {
	s SessionID
	r codec.Reply
}

// fakeHost answers on the loop: by default each acquire is granted and each release done. It may be told to hold replies
// back, to refuse requests, or to answer on a goroutine of its own.
type fakeHost struct {
	mu       sync.Mutex
	e        *Engine
	replies  [maxLoops][]queued
	given    [maxLoops]queued
	events   []event
	live     map[SessionID]bool // those that asked and are not disconnected
	token    uint64
	quiet    bool // record no requests
	noRoom   bool // refuse
	rationed bool // refuse when room is 0
	room     int  // requests that are still taken
	mute     bool // take requests without an answer
	noLeft   bool // never answer Leave
	released int
	// onAcquire, if set, decides about an acquire: nil reply: no answer.
	onAcquire func(s SessionID, r *codec.Request) *codec.Reply
}

func (h *fakeHost) Request(s SessionID, r *codec.Request) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.noRoom || h.rationed && h.room == 0 {
		return false
	}
	h.room--
	if h.live == nil {
		h.live = map[SessionID]bool{}
	}
	h.live[s] = true
	what := [...]string{codec.Acquire: "acquire", codec.Release: "release", codec.Reject: "reject"}[r.Op]
	if !h.quiet {
		h.events = append(h.events, event{what, s, r.ID, string(r.Key)})
	}
	reply := codec.Reply{Flags: r.Flags, ID: r.ID, Token: r.Token, Key: bytes.Clone(r.Key)}
	switch r.Op {
	case codec.Acquire:
		if h.onAcquire != nil {
			rp := h.onAcquire(s, r)
			if rp == nil {
				return true
			}
			reply = *rp
			break
		}
		h.token++
		reply.Kind, reply.Token = codec.Granted, h.token
	case codec.Release:
		h.released++
		reply.Kind = codec.Released
	case codec.Reject:
		reply.Kind, reply.Reason = codec.Rejected, r.Reason
	}
	if !h.mute {
		h.replies[s.Loop()] = append(h.replies[s.Loop()], queued{s, reply})
	}
	return true
}

func (h *fakeHost) Leave(s SessionID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event{what: "leave", s: s})
	if !h.noLeft {
		h.replies[s.Loop()] = append(h.replies[s.Loop()], queued{s, codec.Reply{Kind: codec.Left}})
	}
}

func (h *fakeHost) Disconnected(s SessionID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event{what: "disconnected", s: s})
	delete(h.live, s)
}

func (h *fakeHost) Undelivered(s SessionID, r *codec.Reply) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event{"undelivered", s, r.ID, string(r.Key)})
}

func (h *fakeHost) Flush(loop int) {
	h.mu.Lock()
	e, due := h.e, len(h.replies[loop]) > 0
	h.mu.Unlock()
	if e != nil && due {
		e.Kick(loop)
	}
}

func (h *fakeHost) NextReply(loop int) (SessionID, *codec.Reply, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := &h.replies[loop]
	if len(*q) == 0 {
		return 0, nil, false
	}
	h.given[loop] = (*q)[0]
	*q = (*q)[1:]
	return h.given[loop].s, &h.given[loop].r, true
}

func (h *fakeHost) RepliesTaken(loop int) {}

// say queues replies and kicks the loop of each.
func (h *fakeHost) say(qs ...queued) {
	h.mu.Lock()
	for _, q := range qs {
		h.replies[q.s.Loop()] = append(h.replies[q.s.Loop()], q)
	}
	h.mu.Unlock()
	for _, q := range qs {
		h.e.Kick(q.s.Loop())
	}
}

// set changes the host under its lock, and kicks all loops: there may be room now.
func (h *fakeHost) set(f func()) {
	h.mu.Lock()
	f()
	e := h.e
	h.mu.Unlock()
	for i := range e.Loops() {
		e.Kick(i)
	}
}

func (h *fakeHost) all(what string) []event {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []event
	for _, e := range h.events {
		if e.what == what {
			out = append(out, e)
		}
	}
	return out
}

type rig struct {
	t    testing.TB
	e    *Engine
	h    *fakeHost
	addr string
	cfg  Config
	tls  *tls.Config // of the clients; nil: plain
}

// freePort finds a port that nobody has just now.
func freePort(t testing.TB, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func start(t testing.TB, change func(*Config, *fakeHost)) *rig {
	t.Helper()
	h := &fakeHost{}
	addr := freePort(t, "127.0.0.1")
	cfg := Config{
		Listeners: []Listener{{Addr: addr, Wire: codec.V1}}, Loops: 2, MaxConnections: 4096, Host: h,
		Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg, h)
	}
	e, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	h.e = e
	h.mu.Unlock()
	r := &rig{t: t, e: e, h: h, addr: addr, cfg: cfg}
	if cfg.TLS != nil {
		r.tls = clientConfig
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := e.Finish(ctx); err != nil {
			t.Errorf("Finish: %v", err)
		}
		if len(h.live) > 0 {
			t.Errorf("%d sessions were never disconnected", len(h.live))
		}
		gone := map[SessionID]int{}
		for _, ev := range h.all("disconnected") {
			if gone[ev.s]++; gone[ev.s] > 1 {
				t.Errorf("session %x was disconnected twice", ev.s)
			}
		}
	})
	return r
}

// client is one end of a connection.
type client struct {
	net.Conn
	t  testing.TB
	in *bufio.Reader
}

func (r *rig) raw() *client {
	r.t.Helper()
	c, err := net.DialTimeout("tcp", r.addr, 5*time.Second)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.tls != nil {
		c = tls.Client(c, r.tls)
	}
	return wrap(r.t, c)
}

func wrap(t testing.TB, c net.Conn) *client {
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return &client{c, t, bufio.NewReader(c)}
}

// digest reads a challenge and returns the answer to it.
func (c *client) digest(token string) []byte {
	c.t.Helper()
	line := c.line()
	var g codec.Greeting
	if _, err := fmt.Sscanf(line, "sha256 %s", new(string)); err != nil {
		c.t.Fatalf("challenge: got %q", line)
	}
	n, err := b64(line[len("sha256 "):])
	if err != nil || len(n) != 6 {
		c.t.Fatalf("challenge: got %q (%v)", line, err)
	}
	copy(g.Nonce48[:], n)
	return append(codec.V1.AppendAnswer(nil, []byte(token), &g), '\n')
}

func (r *rig) dial() *client {
	r.t.Helper()
	c := r.raw()
	c.send(c.digest(""))
	return c
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// line reads up to LF, for frames without a binary header.
func (c *client) line() string {
	c.t.Helper()
	s, err := c.in.ReadString('\n')
	if err != nil {
		c.t.Fatalf("read: %v after %q", err, s)
	}
	return s[:len(s)-1]
}

// frame reads one reply of v1 without its LF; "" and the error at the end of the stream.
func (c *client) frame() (string, error) {
	op, err := c.in.ReadByte()
	if err != nil {
		return "", err
	}
	if op == '\n' {
		return "", nil
	}
	header := map[byte]int{'A': 16, 'T': 8, 'B': 8, 'R': 8, 'N': 8}[op]
	b := make([]byte, 1+header)
	b[0] = op
	if _, err := io.ReadFull(c.in, b[1:]); err != nil {
		return "", err
	}
	rest, err := c.in.ReadString('\n')
	return string(b) + rest[:max(0, len(rest)-1)], err
}

func (c *client) wantFrame(want string) {
	c.t.Helper()
	got, err := c.frame()
	if err != nil || got != want {
		c.t.Fatalf("frame: got %q (%v), want %q", got, err, want)
	}
}

// granted reads an A and checks owner and key.
func (c *client) granted(owner uint64, key string) (token uint64) {
	c.t.Helper()
	got, err := c.frame()
	if err != nil || len(got) < 17 || got[0] != 'A' || binary.BigEndian.Uint64([]byte(got[9:17])) != owner || got[17:] != key {
		c.t.Fatalf("frame: got %q (%v), want a grant of %q to %d", got, err, key, owner)
	}
	return binary.BigEndian.Uint64([]byte(got[1:9]))
}

func (c *client) wantEnd() {
	c.t.Helper()
	if got, err := c.frame(); err != io.EOF {
		c.t.Fatalf("got %q (%v), want the end of the stream", got, err)
	}
}

func acquire(owner uint64, key string) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'A', 0, 10}, owner)
	return append(append(b, key...), '\n')
}

func release(token uint64, key string) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'R'}, token)
	return append(append(b, key...), '\n')
}

// until polls a condition.
func until(t testing.TB, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); ; {
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		<-tick.C
	}
}
