package codec

// Limits of the frames, PROTOCOL.md section 2 and WIRES.md section 3.2.
const (
	MaxKeyBytes      = 128 // longest key
	MaxSetKeys       = 16  // most keys in one acquire
	MaxTextFrame     = 192 // longest frame of a text wire without its LF
	MaxHandshakeLine = 256 // longest line of the text handshake without its LF
	MaxSetBytes      = MaxSetKeys * (1 + MaxKeyBytes)
)

// The longest text frame that means anything fits the limit.
const _ uint = MaxTextFrame - (1 + 12 + MaxKeyBytes)
