package codec

import (
	"math"
	"time"
)

// Forever is a wait without an end (wires 0.3 and 0.1, wait 0).
const Forever = time.Duration(math.MaxInt64)

// Op says what a request asks for.
type Op uint8

const (
	KeepAlive Op = iota // an empty frame; asks for nothing
	Acquire             // the key, or all keys of the set
	Release             // the key, or all keys of the set
	Reject              // a whole frame that a wire answers with an error and survives (wire 3): Reason says which
)

// Flags are the ways in which wires differ in what they ask of the core. They travel with the request and come back
// with its replies.
type Flags uint8

const (
	// AsSet marks a request of wire 3 that named its keys as a set (S, G), even a set of one.
	AsSet Flags = 1 << iota
	// Idempotent marks an acquire whose ID names it: the same ID and key again is the same acquire (wire 0.3).
	Idempotent
	// ByKey marks an acquire whose grant may be released by its key alone, and such a release (wire 0.1).
	ByKey
	// InOrder marks an acquire whose answer waits for the answers to the same session's earlier acquires of the same
	// key (wire 0.1).
	InOrder
)

// Request is one decoded frame. Decode fills it; Key and Set borrow the buffer that was decoded and are valid as long
// as that is.
type Request struct {
	Op     Op
	Flags  Flags
	Reason Reason // Reject only
	// ID is what replies echo: the owner on v1 and 0.3, the request id on 3, 0 on 0.1.
	ID    uint64
	Token uint64 // Release: what is released; 0 with ByKey
	// Wait is how long an acquire may queue before the definite no is due: what the frame says, less 100 ms on v1 and 3
	// (PROTOCOL.md section 3). 0 is one attempt without queueing; Forever has no end.
	Wait  time.Duration
	Lease time.Duration
	Key   []byte // the key, 1..MaxKeyBytes bytes; nil if Set is not
	// Set holds two to MaxSetKeys keys in ascending order, each behind its length in one byte; nil for a single key.
	Set []byte
}

// Kind says what a reply says.
type Kind uint8

const (
	Granted      Kind = iota + 1 // Token, ID, Key
	TimedOut                     // the wait is over: definitely not acquired
	Busy                         // refused for load: definitely not acquired
	Released                     // the token is released
	NotHeld                      // the token does not hold what was named
	Mismatched                   // the token holds some of the keys named, but not exactly those (wire 3; elsewhere NotHeld)
	Rejected                     // answers Reject, with its Reason
	Moved                        // not the leader; Leader, or nil if none is known. The request had no effect
	NotActive                    // this node does not serve: a learner, starting, stopping. The request had no effect
	LostQueued                   // leadership was lost while the acquire was only queued: definitely not acquired
	LostProposed                 // leadership was lost while the request was proposed: it may yet take effect
	StopQueued                   // the server stops while the acquire is queued: definitely not acquired
	Notice                       // who leads, for the connection as a whole; answers nothing
	Stopping                     // this node stops, for the connection as a whole; answers nothing
	Left                         // answers eventloop's Leave; never on a wire
)

// Leader says where the leader takes clients, as each wire tells it. It is never changed once made.
type Leader struct {
	Addr   string // v1: host:port
	Addr03 string // wire 0.3; empty: not told there
	Addr01 string // wire 0.1; empty: not told there
	Slot   uint8  // wire 3: index in the ordered list of members
}

// Reply is one answer. AppendReply borrows Key only while it runs.
type Reply struct {
	Kind   Kind
	Flags  Flags // those of the request
	Reason Reason
	ID     uint64
	Token  uint64
	Key    []byte  // the key, which text wires echo; of a set (wire 3 alone) the first
	Leader *Leader // Moved, LostQueued, LostProposed, Notice; nil: none known
}
