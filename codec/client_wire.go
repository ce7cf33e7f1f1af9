package codec

import "time"

// ClientWire is the client's side of a wire: what load generators, drills and tests speak. Like Wire it has no state, is
// safe for concurrent use, and keeps no slice it is given.
type ClientWire interface {
	// Name is the wire's name, as Wire has it.
	Name() string
	// MaxReplyBytes is the longest frame that a server may send.
	MaxReplyBytes() int

	// DecodeChallenge decodes what the server says first. n is 0 while buf holds only a part of it, else the bytes it
	// takes. ErrBadRequest: the server speaks another wire, or asks for a hash that is not known here.
	DecodeChallenge(buf []byte, c *Challenge) (n int, err error)
	// AppendLogin appends the answer to c for a token (empty: none), as it goes over the wire.
	AppendLogin(dst, token []byte, c *Challenge) []byte
	// DecodeOutcome finds what the server says to the answer. known is false while that is not there. Text wires say
	// nothing when the answer was right, so it is known at once there, and an answer that was wrong becomes a reply of
	// kind Rejected. ErrAuthFailed: the answer was wrong.
	DecodeOutcome(buf []byte) (n int, known bool, err error)

	// AppendAcquire appends an acquire of a single key. wait and lease are seconds as the frame says them, and checked
	// no more than the key, so that frames a server must refuse can be made; on v1 and 3 only their low 8 bits fit. Wire
	// 0.1 has no id.
	AppendAcquire(dst []byte, id uint64, wait, lease uint16, key []byte) []byte
	// AppendRelease appends a release of a single key. Only wire 3 has its id; wire 0.1 has no token either.
	AppendRelease(dst []byte, id, token uint64, key []byte) []byte
	// AppendRequest appends the frame that Decode makes r of. Wait and Lease are rounded up to whole seconds and end at
	// the longest that the frame can say. On 0.3 and 0.1 Forever is said as 0, and a wait of 0, which they cannot say, as
	// 1 s. Only wire 3 has words for a Set; there AsSet makes a set of a single Key. A Reject has no frame: nothing is
	// appended.
	AppendRequest(dst []byte, r *Request) []byte
	// AppendKeepAlive appends an empty frame; nothing on wire 3.
	AppendKeepAlive(dst []byte) []byte

	// DecodeReply decodes the frame at the start of buf into r, whose Key borrows buf. n is 0 while buf holds only a part
	// of it, else the bytes it takes. An empty frame leaves Kind 0. M and E of no leader are Moved, E of a node that does
	// not serve is NotActive, other E are Rejected with their Reason, and I is LostProposed. An error is a *FrameError: a
	// frame that no server sends.
	DecodeReply(buf []byte, r *Reply) (n int, err error)
}

// The clients' sides of V1, V3, V03 and V01.
var (
	ClientV1  ClientWire = v1{}
	ClientV3  ClientWire = wire3{}
	ClientV03 ClientWire = wire03{}
	ClientV01 ClientWire = wire01{}
)

// Challenge is what a server says first, as a client needs it.
type Challenge struct {
	Nonce []byte // borrows the buffer: the characters of the line on text wires, 16 bytes on wire 3
	// Mode, Slot and Fingerprint are of wire 3 only, as in Greeting. The wire does not tell the fingerprint:
	// DecodeChallenge sets it in single mode, where all servers have the same, and leaves it as it was else.
	Mode        uint8
	Slot        uint8
	Fingerprint [32]byte
}

// wholeSeconds rounds up, and ends at most.
func wholeSeconds(d time.Duration, most uint16) uint16 {
	if d > time.Duration(most)*time.Second {
		return most
	}
	return uint16((d + time.Second - 1) / time.Second)
}

// waitSeconds16 says a wait as 0.3 and 0.1 do.
func waitSeconds16(wait time.Duration) uint16 {
	if wait == Forever {
		return 0
	}
	return max(1, wholeSeconds(wait, 1<<16-1))
}
