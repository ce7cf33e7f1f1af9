package server

import (
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// lockAddress listens on an abstract unix socket named after the address. It lives in the network namespace, as the port
// does, leaves no file, and ends with the process.
func lockAddress(addr string) (io.Closer, error) {
	return net.Listen("unix", "@ticketing/port/"+addr)
}

// keep lets the event loops of this process bind beside the socket, with SO_REUSEPORT, and from now on keeps every trial
// out that overlaps with it, also one for all interfaces beside one for a single address, for which the locks have
// different names: two sockets can be bound alike only if both have SO_REUSEADDR, or both SO_REUSEPORT.
func (b bound) keep() ([]io.Closer, error) {
	return []io.Closer{b}, errors.Join(
		unix.SetsockoptInt(b.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0),
		unix.SetsockoptInt(b.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
}

func isInUse(err error) bool { return errors.Is(err, unix.EADDRINUSE) }
