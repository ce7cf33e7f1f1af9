package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
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
// taken for life, which fails while another daemon is between its claim and its listeners. The error is a
// *PortInUseError, or what the system says of an address that cannot be bound at all.
func Claim(addr string) (*Claimed, error) {
	resolved, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	network := "tcp"
	if resolved.IP.To4() != nil {
		network = "tcp4" // else 0.0.0.0 would be bound for IPv6 too
	}
	trial, err := net.ListenTCP(network, resolved)
	if err != nil {
		return nil, claimError(addr, err)
	}
	host := ""
	if resolved.IP != nil {
		host = (&net.IPAddr{IP: resolved.IP, Zone: resolved.Zone}).String()
	}
	c := &Claimed{Addr: net.JoinHostPort(host, strconv.Itoa(trial.Addr().(*net.TCPAddr).Port))}
	lock, err := lockAddress(c.Addr)
	if err != nil {
		return nil, errors.Join(claimError(c.Addr, err), trial.Close())
	}
	c.held = append(c.held, lock)
	if resolved.Port == 0 {
		return c, trial.Close() // the system gives a port of its choice to one only
	}
	kept, err := keepBound(trial)
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
