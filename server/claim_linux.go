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

// keepBound makes a listener into a socket that is bound and does not listen. It lets the event loops of this process
// bind beside it, with SO_REUSEPORT, and keeps every trial out that overlaps with it, also one for all interfaces beside
// one for a single address, for which the locks have different names. The order matters: what it allows must be narrowed
// while it still listens, for two sockets that both have SO_REUSEADDR and do not listen can be bound alike.
func keepBound(ln *net.TCPListener) ([]io.Closer, error) {
	raw, err := ln.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = errors.Join(
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 0),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
			unix.Shutdown(int(fd), unix.SHUT_RDWR))
	})
	return []io.Closer{ln}, errors.Join(err, failed)
}

func isInUse(err error) bool { return errors.Is(err, unix.EADDRINUSE) }
