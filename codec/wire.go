package codec

import "time"

// Greeting is what a server says first on a connection, and what an answer is checked against.
type Greeting struct {
	Nonce48  [6]byte  // text wires; unpredictable, never twice in the life of a process
	Nonce128 [16]byte // wire 3; likewise
	// Mode, Slot and Fingerprint are told and signed on wire 3 only: 0 single, 1 cluster; the member's slot (255 in
	// single mode); the fingerprint of the fencing domain.
	Mode        uint8
	Slot        uint8
	Fingerprint [32]byte
}

// After says what becomes of the connection once a reply is written.
type After uint8

const (
	Stay After = iota // it goes on
	End               // it is closed as soon as what was appended is written; what else is due on it is dropped
)

// Wire is one wire format: stateless, safe for concurrent use. No method keeps a slice it is given.
type Wire interface {
	// Name is how logs and metrics call the wire: 1, 3, 0.3, 0.1.
	Name() string
	// MaxFrameBytes is the longest frame a client may send: what a connection must be able to keep of an unfinished one.
	MaxFrameBytes() int
	// MaxLease is the longest lease that a frame can ask for.
	MaxLease() time.Duration

	// AppendGreeting appends what the server sends first.
	AppendGreeting(dst []byte, g *Greeting) []byte
	// DecodeAnswer finds the client's answer at the start of buf. n is 0 while it is not complete, else the bytes it
	// takes; answer borrows buf. An error is one of form: refuse and close.
	DecodeAnswer(buf []byte) (answer []byte, n int, err error)
	// AppendAnswer appends the right answer to g for a client token (empty: none), as DecodeAnswer would return it.
	AppendAnswer(dst []byte, token []byte, g *Greeting) []byte
	// AppendAccepted and AppendRefused append the outcome of authentication; text wires say nothing when it is right.
	AppendAccepted(dst []byte) []byte
	AppendRefused(dst []byte) []byte

	// Decode decodes the frame at the start of buf into r. n is 0 while buf holds only a part of it, else the bytes it
	// takes. An error is a *FrameError and ends the connection: nothing after it can be trusted. r is set as a whole when
	// n is not 0, and left as it was otherwise.
	Decode(buf []byte, r *Request) (n int, err error)
	// AppendReply appends r. It appends nothing where the wire has no word for it.
	AppendReply(dst []byte, r *Reply) ([]byte, After)
	// AppendKeepAlive appends an empty frame; nothing on wire 3.
	AppendKeepAlive(dst []byte) []byte
	// AppendFault appends the farewell for a frame error; nothing on wire 3.
	AppendFault(dst []byte, reason Reason) []byte
}
