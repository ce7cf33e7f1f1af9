package server

import "sync/atomic"

// Commands in flight: read and not yet decided (PROTOCOL.md section 5).
const (
	maxAcquires = 4096 // the gate closes at 90 % and opens below 75 %
	maxReleases = 512  // a lane of their own: when it is full, whoever sends one is not read

	acquiresClose = maxAcquires * 9 / 10
	acquiresOpen  = maxAcquires * 3 / 4
)

// gates counts what is in flight over all loops. The loops enter, the apply goroutine leaves.
type gates struct {
	_        [128]byte // no other writer's line beside the counters
	acquires atomic.Int64
	closed   atomic.Bool
	_        [128]byte
	releases atomic.Int64
	_        [128]byte
}

// enterAcquire counts an acquire in, unless the gate is closed.
func (g *gates) enterAcquire() bool {
	if g.closed.Load() {
		return false
	}
	n := g.acquires.Add(1)
	if n >= acquiresClose {
		g.closed.Store(true)
		if n > maxAcquires { // several loops at once saw it open
			g.acquires.Add(-1)
			return false
		}
		if g.acquires.Load() < acquiresOpen { // it emptied between the two lines above, and nobody will open it again
			g.closed.Store(false)
		}
	}
	return true
}

// enterRelease counts a release in if its lane has room.
func (g *gates) enterRelease() bool {
	if g.releases.Add(1) <= maxReleases {
		return true
	}
	g.releases.Add(-1)
	return false
}

// leave counts decided commands out.
func (g *gates) leave(acquires, releases int) {
	if acquires != 0 && g.acquires.Add(-int64(acquires)) < acquiresOpen && g.closed.Load() {
		g.closed.Store(false)
	}
	if releases != 0 {
		g.releases.Add(-int64(releases))
	}
}
