//go:build !linux

package eventloop

import "os"

// manyLoops is false: here SO_REUSEPORT gives every connection to one of the listeners, so one loop does it all.
const manyLoops = false

// setUserTimeout does nothing: there is no user timeout to set, TCP keep-alive drops a dead peer.
func setUserTimeout(int) {}

// openFiles counts the descriptors of this process.
func openFiles() int {
	e, err := os.ReadDir("/dev/fd")
	if err != nil {
		return unknownFiles
	}
	return len(e)
}
