package eventloop

import "github.com/ticketing-go/ticketing/codec"

// SessionID names a session for the life of the process: loop (8 bits), slot on that loop (24 bits), generation of the
// slot (32 bits, never 0). A name is never given twice; what comes for a name whose session is gone is dropped.
type SessionID uint64

// NewSessionID packs the three parts.
func NewSessionID(loop, slot int, generation uint32) SessionID {
	return SessionID(uint64(loop)<<56 | uint64(slot)<<32 | uint64(generation))
}

// Loop is the index of the session's loop.
func (s SessionID) Loop() int { return int(s >> 56) }

// Slot is the session's slot on its loop.
func (s SessionID) Slot() int { return int(s>>32) & (1<<24 - 1) }

// Generation tells the sessions of one slot apart.
func (s SessionID) Generation() uint32 { return uint32(s) }

// Host takes what the loops have decoded and gives what they are to write. Every method is called on the loop it names
// (or whose session it names), never blocks, and may be called by several loops at once.
type Host interface {
	// Request hands over one decoded request of an authenticated session. r and what it borrows are the caller's again
	// when Request returns. false: there is no room (the release lane or the ring is full); nothing was taken, and the
	// same request must be offered again after the next Kick of this loop.
	Request(s SessionID, r *codec.Request) bool
	// Leave says that a session sends nothing more, but wants what is in flight answered: its queued acquires leave.
	// When all is answered, a reply of kind codec.Left follows the others. Unasked, codec.Left has the session closed.
	Leave(s SessionID)
	// Disconnected says that nothing more will be written to a session. Called once for every session that was
	// authenticated.
	Disconnected(s SessionID)
	// Undelivered says that a reply of kind codec.Granted was never handed to the socket layer.
	Undelivered(s SessionID, r *codec.Reply)
	// Flush ends a run of calls on one loop: what was handed over is made visible and its reader woken.
	Flush(loop int)
	// NextReply returns the next reply that is due on a loop, with its session, or ok false if there is none. The reply
	// is valid until the next call for that loop.
	NextReply(loop int) (s SessionID, r *codec.Reply, ok bool)
	// RepliesTaken ends a run of NextReply: what was returned may be overwritten.
	RepliesTaken(loop int)
}
