package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// PortInUseError is an address that another process listens on or has claimed.
type PortInUseError struct {
	Addr string
	Err  error
}

// Error names the address.
func (e *PortInUseError) Error() string { return "port in use: " + e.Addr }

// Unwrap is what the system said.
func (e *PortInUseError) Unwrap() error { return e.Err }

// Claimed is an address that belongs to this process until Close, or until the process ends, however it ends.
type Claimed struct {
	Addr string // host:port with the port that was chosen, where 0 was asked for; the host is an IP address, or empty
	held []io.Closer
}

// Close gives the address up.
func (c *Claimed) Close() error {
	var errs []error
	for _, h := range c.held {
		errs = append(errs, h.Close())
	}
	return errors.Join(errs...)
}

// Claim takes addr for this process. With SO_REUSEPORT, which the event loops need, the system lets a second daemon of
// the same user bind the same port without a word, and then there are two lock tables. So the address is bound once
// without it, which fails while anyone listens there, and while that socket is open a lock named after the address is
// taken for life, which fails while another daemon is between its claim and its listeners. Nothing listens yet: whoever
// connects is refused, and not accepted and then reset. The error is a *PortInUseError, or what the system says of an
// address that cannot be bound at all.
func Claim(addr string) (*Claimed, error) {
	resolved, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	trial, err := bindAlone(resolved)
	if err != nil {
		return nil, claimError(addr, err)
	}
	host := ""
	if resolved.IP != nil {
		host = (&net.IPAddr{IP: resolved.IP, Zone: resolved.Zone}).String()
	}
	c := &Claimed{Addr: net.JoinHostPort(host, strconv.Itoa(trial.port))}
	lock, err := lockAddress(c.Addr)
	if err != nil {
		return nil, errors.Join(claimError(c.Addr, err), trial.Close())
	}
	c.held = append(c.held, lock)
	kept, err := trial.keep()
	if err != nil {
		return nil, errors.Join(claimError(c.Addr, err), trial.Close(), lock.Close())
	}
	c.held = append(c.held, kept...)
	return c, nil
}

func claimError(addr string, err error) error {
	if isInUse(err) {
		return &PortInUseError{addr, err}
	}
	return fmt.Errorf("listen on %s: %w", addr, err)
}

// bound is a socket that is bound and does not listen.
type bound struct{ fd, port int }

// Close ends it.
func (b bound) Close() error { return unix.Close(b.fd) }

// bindAlone binds a without SO_REUSEPORT. SO_REUSEADDR passes by connections in TIME_WAIT and never by listeners.
func bindAlone(a *net.TCPAddr) (bound, error) {
	if ip := a.IP.To4(); ip != nil {
		return bindTo(unix.AF_INET, &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte(ip)})
	}
	to := &unix.SockaddrInet6{Port: a.Port}
	if a.IP != nil {
		to.Addr = [16]byte(a.IP.To16())
	}
	if i, err := net.InterfaceByName(a.Zone); err == nil {
		to.ZoneId = uint32(i.Index)
	}
	b, err := bindTo(unix.AF_INET6, to)
	if a.IP == nil && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL)) {
		return bindTo(unix.AF_INET, &unix.SockaddrInet4{Port: a.Port}) // a machine without IPv6
	}
	return b, err
}

func bindTo(family int, to unix.Sockaddr) (bound, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err != nil {
		return bound{}, err
	}
	unix.CloseOnExec(fd)
	if family == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	if err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)); err == nil {
		err = unix.Bind(fd, to)
	}
	if err != nil {
		return bound{}, errors.Join(err, unix.Close(fd))
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return bound{}, errors.Join(err, unix.Close(fd))
	}
	b := bound{fd: fd}
	switch at := name.(type) {
	case *unix.SockaddrInet4:
		b.port = at.Port
	case *unix.SockaddrInet6:
		b.port = at.Port
	}
	return b, nil
}
