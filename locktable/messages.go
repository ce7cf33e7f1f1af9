package locktable

import (
	"math"
	"time"
)

// Forever is a wait without an end.
const Forever = time.Duration(math.MaxInt64)

// KeySet is one to 16 keys, each behind its length in one byte, in ascending order, none twice. The table compares key
// sets byte by byte and keeps none that it is given.
type KeySet []byte

// Single says whether the set is of one key.
func (s KeySet) Single() bool { return len(s) == 1+int(s[0]) }

// First is the first key of the set.
func (s KeySet) First() []byte { return s[1 : 1+int(s[0])] }

// Session names a client's session: loop in the highest 8 bits, slot in the next 24, generation (never 0) in the lowest
// 32. The table uses loop and slot as indices, so they must be dense, and the generation to tell one user of a slot from
// the next.
type Session uint64

// Token is a fencing token. 0 is never issued.
type Token uint64

// LastToken is the last token that is ever issued (PROTOCOL.md section 3).
const LastToken Token = math.MaxUint64 - 1

// Flags are what a wire asks of an acquire or a release beside the usual; they come back with the replies, Idempotent only
// where it counts.
type Flags uint8

const (
	// AsSet means nothing to the table: it is echoed.
	AsSet Flags = 1 << iota
	// Idempotent: an acquire of a single key whose ID (not 0) names it (WIRES.md section 4).
	Idempotent
	// ByKey: an acquire whose grant may be released by key alone, and such a release (WIRES.md section 5.3).
	ByKey
	// InOrder: the answer waits for those to earlier acquires of the same session and key (WIRES.md section 5.2).
	InOrder
)

// Acquire asks for a set of keys.
type Acquire struct {
	Session Session
	ID      uint64 // echoed
	Keys    KeySet
	Flags   Flags
	Wait    time.Duration // until its TimedOut is due; 0: one attempt without queueing; Forever
	Lease   time.Duration // above 0, 49 days at most; rounded up to whole milliseconds
}

// Release gives a set of keys back.
type Release struct {
	Session Session
	ID      uint64 // echoed
	Token   Token
	Keys    KeySet
	Flags   Flags
}

// Kind says what a reply says.
type Kind uint8

const (
	Granted Kind = iota + 1
	TimedOut
	Busy
	Released
	NotHeld
	Mismatched   // the token holds some of the keys named, but not exactly those
	LostQueued   // leadership was lost while the acquire was queued or decided, and not proposed
	LostProposed // leadership was lost while the request hung on a record in flight
	StopQueued   // Stop was called while the acquire was queued
	Left         // answers Leave; unasked: the session must end, too many answers are held back for it
)

// Reply answers one command.
type Reply struct {
	Session Session
	Kind    Kind
	Flags   Flags
	ID      uint64
	Token   Token
	Key     []byte // the first key, borrowed while the sink runs
}

// Sink takes replies in the order in which they become true. It must not call the table.
type Sink interface {
	Reply(r *Reply)
}

// Limits are the bounds of a table (PROTOCOL.md section 5).
type Limits struct {
	MaxKeys         int // active keys: gate at 90 %, open below 75 %
	MaxWaiters      int // waiters of one key: no hysteresis
	MaxTotalWaiters int // waiters in all: gate at 90 %, open below 75 %
	// MaxRecords is the number of records that may be in flight at once; MaxEntries the number of entries in one.
	MaxRecords int
	MaxEntries int
}

// Counts are what a table has counted since it was made, and what is in it now.
type Counts struct {
	Grants, Releases, NotHelds, Timeouts                uint64
	BusyKeys, BusyWaiters, BusyKeyWaiters, BusySpent    uint64 // Busy by reason: a gate, a gate, the limit of one key, the token counter
	BusyGrace                                           uint64 // and a grace
	Expiries, Revocations, HandOvers, Reaffirms, Queued uint64
	Keys, Held, Waiters                                 int // active keys; keys held; waiting acquires
	UndecidedAcquires, UndecidedReleases                int // commands that hang on a record not yet resolved
	RecordsInFlight                                     int
	KeysGateClosed, WaitersGateClosed                   bool
}
