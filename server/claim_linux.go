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

func isInUse(err error) bool { return errors.Is(err, unix.EADDRINUSE) }
