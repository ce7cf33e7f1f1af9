package eventloop

import "golang.org/x/sys/unix"

// unknownFiles is assumed to be open where the descriptors cannot be counted.
const unknownFiles = 64

// fileReserve is what is left for the rest of the process (admin requests, peers, reloads) and for the connections that
// are being turned away: a quarter of a small limit, 64 of a large one.
func fileReserve(limit int) int { return min(64, limit/4) }

// connectionCap lowers want to what the descriptor limit allows: at EMFILE gnet ends the whole engine.
func connectionCap(want int) int {
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil || lim.Cur > 1<<30 {
		return want
	}
	limit := int(lim.Cur)
	return max(1, min(want, limit-openFiles()-fileReserve(limit)))
}
