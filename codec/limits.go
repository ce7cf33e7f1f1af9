package codec

import "time"

// Limits of the frames, PROTOCOL.md section 2 and WIRES.md section 3.2.
const (
	MaxKeyBytes      = 128 // longest key
	MaxSetKeys       = 16  // most keys in one acquire
	MaxTextFrame     = 192 // longest frame of a text wire without its LF
	MaxHandshakeLine = 256 // longest line of the text handshake without its LF
	MaxSetBytes      = MaxSetKeys * (1 + MaxKeyBytes)
	MaxAddrBytes     = MaxTextFrame - 1 // longest address in M and L; a longer one is not told
)

// Limits of the times, WIRES.md section 1.
const (
	maxLeaseSeconds8 = 250 // v1 and 3
	maxLease8        = maxLeaseSeconds8 * time.Second
	maxLease16       = (1<<16 - 1) * time.Second // 0.3 and 0.1

	// answerMargin is how long before the end of the wait the definite no is due on v1 and 3: the client's own deadline
	// runs from its call, and a no behind it costs the session (PROTOCOL.md section 3).
	answerMargin = 100 * time.Millisecond
)

// The longest text frame that means anything fits the limit: an acquire of 0.3 and a grant.
const (
	_ uint = MaxTextFrame - (wire03AcquireHeader + MaxKeyBytes)
	_ uint = MaxTextFrame - (grantHeader + MaxKeyBytes)
)

// A shortest wait above 0 stays above 0 without the margin: it must not turn into one attempt without queueing.
const _ = uint64(time.Second - answerMargin - 1)
