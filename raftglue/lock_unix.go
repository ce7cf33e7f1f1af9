//go:build unix

package raftglue

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile locks f for the life of its descriptor, or fails at once if another process has it.
func lockFile(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
