//go:build unix && !linux

package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockAddress locks a file in the directory for temporary files, named after the address. The lock ends with the process;
// the file stays, since removing it would let two processes lock two files of one name.
func lockAddress(addr string) (io.Closer, error) {
	name := "ticketing-port-" + strings.NewReplacer(":", "_", "%", "_").Replace(addr) + ".lock"
	f, err := os.OpenFile(filepath.Join(os.TempDir(), name), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return f, nil
}

// keep ends the trial: what a bound socket keeps out differs from system to system.
func (b bound) keep() ([]io.Closer, error) { return nil, b.Close() }

func isInUse(err error) bool {
	return errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EWOULDBLOCK)
}
