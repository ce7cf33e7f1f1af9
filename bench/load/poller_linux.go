package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ticketing-go/ticketing/bench/frames"
)

const (
	readBytes        = 256 << 10 // more than one connection's replies of a batch
	eventsPerWait    = 512
	handshakeSeconds = 10
)

// conn is one nonblocking connection. out collects requests until flush.
type conn struct {
	index int
	fd    int
	rest  [frames.MaxBytes]byte // the part of a reply whose end has not come
	nrest int
	out   []byte
}

// poller reads all connections of a run on the caller's goroutine.
type poller struct {
	epoll  int
	conns  []*conn
	byFD   map[int32]*conn
	events []unix.EpollEvent
	in     []byte
	start  time.Time
	at     time.Duration // since start, when the replies that are being taken were read
}

// newPoller opens n authenticated connections to the target. Close ends them.
func newPoller(t Target, n int) (*poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	p := &poller{
		epoll: epoll, byFD: make(map[int32]*conn, n),
		events: make([]unix.EpollEvent, eventsPerWait), in: make([]byte, readBytes), start: time.Now(),
	}
	for i := range n {
		fd, err := dial(t)
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("connection %d: %w", i, err)
		}
		c := &conn{index: i, fd: fd}
		p.conns = append(p.conns, c)
		p.byFD[int32(fd)] = c
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// Close closes all connections.
func (p *poller) Close() error {
	for _, c := range p.conns {
		unix.Close(c.fd)
	}
	return unix.Close(p.epoll)
}

// now is the time since the poller was made.
func (p *poller) now() time.Duration { return time.Since(p.start) }

// dial opens one connection, blocking, and leaves it authenticated and nonblocking.
func dial(t Target) (fd int, err error) {
	addr, err := netip.ParseAddrPort(t.Addr)
	if err != nil {
		return -1, err
	}
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()})
	if addr.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err = handshake(fd, sa, t.Token); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func handshake(fd int, sa unix.Sockaddr, token []byte) error {
	limit := unix.Timeval{Sec: handshakeSeconds}
	if err := errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
	); err != nil {
		return err
	}
	if err := ignoringInterrupts(func() error { return unix.Connect(fd, sa) }); err != nil {
		return err
	}
	var line [64]byte
	n := 0
	for n == 0 || line[n-1] != '\n' {
		var m int
		if err := ignoringInterrupts(func() (err error) { m, err = unix.Read(fd, line[n:]); return err }); err != nil {
			return err
		}
		if m == 0 || n+m == len(line) {
			return fmt.Errorf("%w: challenge %q", ErrRefused, line[:n+m])
		}
		n += m
	}
	answer, err := frames.AppendAnswer(nil, line[:n-1], token)
	if err != nil {
		return err
	}
	if err := ignoringInterrupts(func() error { _, err := unix.Write(fd, answer); return err }); err != nil {
		return err
	}
	return unix.SetNonblock(fd, true)
}

func ignoringInterrupts(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// poll waits up to timeout for replies and gives each to take, with the connection it came on. After the replies of one
// read, what take has put into conn.out is sent.
func (p *poller) poll(timeout time.Duration, take func(c *conn, r *frames.Reply) error) error {
	n, err := unix.EpollWait(p.epoll, p.events, int(timeout.Milliseconds()))
	if err != nil && err != unix.EINTR {
		return err
	}
	for i := range max(n, 0) {
		c := p.byFD[p.events[i].Fd]
		if err := p.read(c, take); err != nil {
			return fmt.Errorf("connection %d: %w", c.index, err)
		}
	}
	return nil
}

func (p *poller) read(c *conn, take func(c *conn, r *frames.Reply) error) error {
	kept := copy(p.in, c.rest[:c.nrest])
	n, err := unix.Read(c.fd, p.in[kept:])
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return nil
	case err != nil:
		return err
	case n == 0:
		return io.ErrUnexpectedEOF
	}
	p.at = p.now()
	buf := p.in[:kept+n]
	var r frames.Reply
	for {
		n, err := frames.Decode(buf, &r)
		if err != nil {
			return fmt.Errorf("%w: %q", err, buf[:min(len(buf), frames.MaxBytes)])
		}
		if n == 0 {
			break
		}
		buf = buf[n:]
		switch r.Op {
		case frames.KeepAlive, frames.Leader:
			continue
		case frames.Error, frames.Moved:
			return fmt.Errorf("%w: %c%s", ErrRefused, r.Op, bytes.Clone(r.Text))
		}
		if err := take(c, &r); err != nil {
			return err
		}
	}
	c.nrest = copy(c.rest[:], buf)
	return c.flush()
}

// flush sends what out holds. It blocks where the server does not read, for stallTimeout at most.
func (c *conn) flush() error {
	out := c.out
	for len(out) > 0 {
		n, err := unix.Write(c.fd, out)
		switch {
		case err == unix.EAGAIN:
			ready, err := unix.Poll([]unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}, int(stallTimeout.Milliseconds()))
			if err != nil && err != unix.EINTR {
				return err
			}
			if ready == 0 {
				return ErrStalled
			}
		case err != nil && err != unix.EINTR:
			return err
		}
		out = out[max(n, 0):]
	}
	c.out = c.out[:0]
	return nil
}
