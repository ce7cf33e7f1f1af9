package eventloop

import (
	"sync/atomic"
	"time"

	"github.com/ticketing-go/ticketing/codec"
)

// failure is why a connection was never authenticated, or, failedRecord, why TLS ended one that was.
type failure uint8

const (
	failedTimeout  failure = iota // not done in authTimeout
	failedAnswer                  // the answer of no token
	failedForm                    // no answer at all
	failedTLS                     // the TLS handshake
	failedRecord                  // TLS, after the handshake
	failedIdentity                // wire 3's hello cannot be told
	failedLeft                    // closed before it was done, for none of these reasons
	failures
)

var failureNames = [failures]string{"timeout", "wrong_answer", "malformed", "tls_handshake", "tls_record", "no_identity", "left"}

// runBounds are the upper bounds of the histogram of replies in one write.
var runBounds = [...]int{1, 2, 4, 8, 16, 32, repliesPerWrite}

// counters of the engine that belong to no loop.
type counters struct {
	live atomic.Int64 // sessions, and names of sessions whose releases still wait for room
}

// loopCounters are written on one loop and read anywhere.
type loopCounters struct {
	accepted, refused, overCap, authenticated     atomic.Uint64
	revoked, held, slow, overrun, pressed, paused atomic.Uint64
	requests, replies, writes, bytesIn, bytesOut  atomic.Uint64
	undelivered                                   atomic.Uint64
	busy                                          atomic.Int64 // nanoseconds
	faults                                        [codec.BadToken + 1]atomic.Uint64
	handshakes                                    [failures]atomic.Uint64
	runs                                          [len(runBounds)]atomic.Uint64
}

func (n *loopCounters) failed(why failure) { n.handshakes[why].Add(1) }

func (n *loopCounters) wrote(bytes, replies int) {
	n.bytesOut.Add(uint64(bytes))
	n.writes.Add(1)
	if replies == 0 {
		return
	}
	n.replies.Add(uint64(replies))
	for i, b := range runBounds {
		if replies <= b {
			n.runs[i].Add(1)
			return
		}
	}
}

// Stats is what the engine has counted since it started; Connections, Unauthenticated and MaxConnections are of now.
type Stats struct {
	Connections     int
	Unauthenticated int
	MaxConnections  int // after the descriptor limit

	Accepted      uint64 // sessions opened
	Authenticated uint64
	OverCap       uint64 // closed at once: all places taken
	Refused       uint64 // closed at once: shutting down
	Evicted       uint64 // unauthenticated ones that made room
	Revoked       uint64 // closed by SetTokens
	Held          uint64 // challenges held back

	HandshakeFailures map[string]uint64 // by reason; "left": closed by the client, or evicted
	FrameFaults       map[string]uint64 // by codec.Reason
	SlowCloses        uint64            // back-pressure: 256 KiB kept, or no progress for 5 s
	Overruns          uint64            // too much kept while the Host had no room
	Pressed           uint64            // times a connection came under back-pressure
	Paused            uint64            // times the Host had no room for a request

	BytesIn, BytesOut uint64 // on the sockets
	Requests          uint64
	Replies           uint64
	Undelivered       uint64 // grants for sessions that were gone
	Writes            uint64

	// RepliesPerWrite counts writes by the replies in them: at most RunBounds[i], and more than the bound before.
	RunBounds       []int
	RepliesPerWrite []uint64
	// Busy is the time each loop has spent in our callbacks, writes included, reads not.
	Busy []time.Duration
}

// Stats adds up the counters of all loops.
func (e *Engine) Stats() Stats {
	s := Stats{
		HandshakeFailures: make(map[string]uint64), FrameFaults: make(map[string]uint64),
		RunBounds: runBounds[:], RepliesPerWrite: make([]uint64, len(runBounds)),
		MaxConnections: int(e.lobby.limit.Load()),
	}
	e.lobby.mu.Lock()
	s.Connections = int(e.lobby.open) + e.lobby.evicting + e.lobby.turned
	s.Unauthenticated = e.lobby.waiting
	s.Evicted = e.lobby.evicted
	e.lobby.mu.Unlock()
	for _, l := range e.loops {
		n := &l.n
		for to, from := range map[*uint64]*atomic.Uint64{
			&s.Accepted: &n.accepted, &s.Authenticated: &n.authenticated, &s.OverCap: &n.overCap, &s.Refused: &n.refused,
			&s.Revoked: &n.revoked, &s.Held: &n.held, &s.SlowCloses: &n.slow, &s.Overruns: &n.overrun,
			&s.Pressed: &n.pressed, &s.Paused: &n.paused, &s.BytesIn: &n.bytesIn, &s.BytesOut: &n.bytesOut,
			&s.Requests: &n.requests, &s.Replies: &n.replies, &s.Undelivered: &n.undelivered, &s.Writes: &n.writes,
		} {
			*to += from.Load()
		}
		for i := range n.handshakes {
			s.HandshakeFailures[failureNames[i]] += n.handshakes[i].Load()
		}
		for r := codec.BadOp; r <= codec.LineTooLong; r++ {
			s.FrameFaults[r.String()] += n.faults[r].Load()
		}
		for i := range n.runs {
			s.RepliesPerWrite[i] += n.runs[i].Load()
		}
		s.Busy = append(s.Busy, time.Duration(n.busy.Load()))
	}
	return s
}
