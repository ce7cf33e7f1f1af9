package eventloop

import (
	"os"

	"golang.org/x/sys/unix"
)

// manyLoops says that SO_REUSEPORT spreads connections over several listeners.
const manyLoops = true

// setUserTimeout makes the kernel drop a peer that acknowledges nothing for userTimeout.
func setUserTimeout(fd int) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
}

// openFiles counts the descriptors of this process.
func openFiles() int {
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return unknownFiles
	}
	return len(e) - 1 // the directory itself
}
