package raftglue

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// memNet is a network in memory that can be cut: what is sent over a cut link arrives when the link is whole again, as
// over TCP, and dialing over it takes until the dialer gives up.
type memNet struct {
	mu        sync.Mutex
	changed   *sync.Cond
	listeners map[string]*memListener
	cuts      map[[2]string]bool // from host, to host
	halves    map[*half]struct{} // open
}

func newMemNet() *memNet {
	m := &memNet{listeners: map[string]*memListener{}, cuts: map[[2]string]bool{}, halves: map[*half]struct{}{}}
	m.changed = sync.NewCond(&m.mu)
	return m
}

// cut makes what host a sends to host b wait; heal lets it through.
func (m *memNet) cut(a, b string) { m.set(a, b, true) }

func (m *memNet) set(a, b string, cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cuts[[2]string{a, b}] = cut
	m.wake()
}

func (m *memNet) healAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.cuts)
	m.wake()
}

// lose drops what waits for a cut link from a host, as when the machine is gone and not the process alone.
func (m *memNet) lose(from string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for h := range m.halves {
		if h.from == from {
			h.held = nil
		}
	}
}

// wake has all look again; mu is held.
func (m *memNet) wake() {
	m.changed.Broadcast()
	for h := range m.halves {
		h.changed.Broadcast()
	}
}

// memHost is one machine of a memNet.
type memHost struct {
	net  *memNet
	name string
	mu   sync.Mutex
	down bool
	all  map[*memConn]struct{}
}

func (m *memNet) host(name string) *memHost {
	return &memHost{net: m, name: name, all: map[*memConn]struct{}{}}
}

// crash resets all connections of the host and takes its ports away, as the end of a process does.
func (h *memHost) crash() {
	h.mu.Lock()
	h.down = true
	conns := h.all
	h.all = map[*memConn]struct{}{}
	h.mu.Unlock()
	for c := range conns {
		c.Close()
	}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	for a, l := range h.net.listeners {
		if l.host == h {
			l.closed = true
			delete(h.net.listeners, a)
		}
	}
	h.net.changed.Broadcast()
}

type memListener struct {
	host    *memHost
	address string
	queue   []*memConn
	closed  bool
}

type memAddr string

func (memAddr) Network() string  { return "mem" }
func (a memAddr) String() string { return string(a) }

func (h *memHost) listen(address string) (net.Listener, error) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.net.listeners[address] != nil {
		return nil, errors.New("address in use")
	}
	l := &memListener{host: h, address: address}
	h.net.listeners[address] = l
	return l, nil
}

func (l *memListener) Accept() (net.Conn, error) {
	m := l.host.net
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		if l.closed {
			return nil, net.ErrClosed
		}
		if len(l.queue) > 0 {
			c := l.queue[0]
			l.queue = l.queue[1:]
			return c, nil
		}
		m.changed.Wait()
	}
}

func (l *memListener) Close() error {
	m := l.host.net
	m.mu.Lock()
	defer m.mu.Unlock()
	l.closed = true
	if m.listeners[l.address] == l {
		delete(m.listeners, l.address)
	}
	m.changed.Broadcast()
	return nil
}

func (l *memListener) Addr() net.Addr { return memAddr(l.address) }

func (h *memHost) dial(ctx context.Context, address string) (net.Conn, error) {
	m := h.net
	stop := context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.changed.Broadcast()
	})
	defer stop()
	host, _, _ := net.SplitHostPort(address)
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.cuts[[2]string{h.name, host}] || m.cuts[[2]string{host, h.name}] {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		m.changed.Wait()
	}
	l := m.listeners[address]
	h.mu.Lock()
	down := h.down
	h.mu.Unlock()
	if l == nil || down {
		return nil, errors.New("connection refused")
	}
	up, back := m.half(h.name, host), m.half(host, h.name)
	mine := &memConn{in: back, out: up, host: h, remote: memAddr(address)}
	theirs := &memConn{in: up, out: back, host: l.host, remote: memAddr(h.name)}
	for _, c := range []*memConn{mine, theirs} {
		c.host.mu.Lock()
		c.host.all[c] = struct{}{}
		c.host.mu.Unlock()
	}
	l.queue = append(l.queue, theirs)
	m.changed.Broadcast()
	return mine, nil
}

// half is one direction of a connection.
type half struct {
	net      *memNet
	changed  *sync.Cond // on net.mu
	from, to string
	buf      []byte
	held     []byte // sent while the link was cut
	closed   bool
	ended    bool
	deadline time.Time
	timer    *time.Timer
}

// half makes one direction; mu is held.
func (m *memNet) half(from, to string) *half {
	h := &half{net: m, from: from, to: to, changed: sync.NewCond(&m.mu)}
	m.halves[h] = struct{}{}
	return h
}

const halfMax = 64 << 10

type memConn struct {
	in, out *half
	closed  bool // by this side
	host    *memHost
	remote  net.Addr
}

func (h *half) cut() bool { return h.net.cuts[[2]string{h.from, h.to}] }

func (c *memConn) Read(p []byte) (int, error) {
	h := c.in
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	for {
		if !h.cut() && len(h.held) > 0 {
			h.buf = append(h.buf, h.held...)
			h.held = nil
		}
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case len(h.buf) > 0:
			n := copy(p, h.buf)
			h.buf = h.buf[n:]
			h.changed.Broadcast()
			return n, nil
		case h.closed && !h.cut():
			return 0, io.EOF
		case !h.deadline.IsZero() && !time.Now().Before(h.deadline):
			return 0, os.ErrDeadlineExceeded
		}
		h.changed.Wait()
	}
}

func (c *memConn) Write(p []byte) (int, error) {
	h := c.out
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	sent := 0
	for sent < len(p) {
		if c.closed || h.closed && !h.cut() || c.in.closed && !c.in.cut() {
			return sent, net.ErrClosed
		}
		room := halfMax - len(h.buf) - len(h.held)
		if room <= 0 {
			h.changed.Wait()
			continue
		}
		n := min(room, len(p)-sent)
		if h.cut() || len(h.held) > 0 {
			h.held = append(h.held, p[sent:sent+n]...)
		} else {
			h.buf = append(h.buf, p[sent:sent+n]...)
		}
		sent += n
		h.changed.Broadcast()
	}
	return sent, nil
}

func (c *memConn) Close() error {
	c.host.mu.Lock()
	delete(c.host.all, c)
	c.host.mu.Unlock()
	m := c.host.net
	m.mu.Lock()
	defer m.mu.Unlock()
	c.closed, c.in.closed, c.out.closed = true, true, true
	c.in.ended = true // its reader is gone; when both are, nobody waits
	for _, h := range []*half{c.in, c.out} {
		if h.timer != nil {
			h.timer.Stop()
		}
	}
	c.in.buf, c.in.held = nil, nil
	for _, h := range []*half{c.in, c.out} {
		h.changed.Broadcast()
		if c.in.ended && c.out.ended {
			delete(m.halves, h)
		}
	}
	return nil
}

func (c *memConn) SetReadDeadline(t time.Time) error {
	h := c.in
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.deadline = t
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
	if !t.IsZero() && !h.closed {
		h.timer = time.AfterFunc(time.Until(t), func() {
			h.net.mu.Lock()
			defer h.net.mu.Unlock()
			h.changed.Broadcast()
		})
	}
	return nil
}

func (c *memConn) SetDeadline(t time.Time) error      { return c.SetReadDeadline(t) }
func (c *memConn) SetWriteDeadline(t time.Time) error { return nil }
func (c *memConn) LocalAddr() net.Addr                { return memAddr(c.host.name) }
func (c *memConn) RemoteAddr() net.Addr               { return c.remote }
