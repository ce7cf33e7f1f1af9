package codec

import (
	"encoding/binary"
	"time"
)

// V01 is wire 0.1, WIRES.md section 5: no owner, release by key alone, replies in the order of the requests.
var V01 Wire = wire01{}

const wire01AcquireHeader = 1 + 2 + 2 // op, wait, lease

type wire01 struct{ text }

func (wire01) Name() string { return "0.1" }

func (wire01) MaxLease() time.Duration { return maxLease16 }

func (wire01) Decode(buf []byte, r *Request) (n int, err error) {
	if len(buf) == 0 {
		return 0, nil
	}
	switch buf[0] {
	case 'A':
		return decodeAcquire01(buf, r)
	case 'R':
		return decodeRelease01(buf, r)
	case lf:
		*r = Request{Op: KeepAlive}
		return 1, nil
	}
	return 0, ErrBadOp
}

func decodeAcquire01(buf []byte, r *Request) (n int, err error) {
	end, err := textEnd(buf, wire01AcquireHeader)
	if end == 0 {
		return 0, err
	}
	lease := binary.BigEndian.Uint16(buf[3:])
	if lease == 0 {
		return 0, ErrBadLease
	}
	key := buf[wire01AcquireHeader:end:end]
	if !validKey(key) {
		return 0, ErrBadKey
	}
	*r = Request{
		Op:    Acquire,
		Flags: ByKey | InOrder,
		Wait:  wait16(binary.BigEndian.Uint16(buf[1:])),
		Lease: time.Duration(lease) * time.Second,
		Key:   key,
	}
	return end + 1, nil
}

func decodeRelease01(buf []byte, r *Request) (n int, err error) {
	end, err := textEnd(buf, opHeader)
	if end == 0 {
		return 0, err
	}
	key := buf[opHeader:end:end]
	if !validKey(key) {
		return 0, ErrBadKey
	}
	*r = Request{Op: Release, Flags: ByKey, Key: key}
	return end + 1, nil
}

func (wire01) AppendReply(dst []byte, r *Reply) ([]byte, After) {
	switch r.Kind {
	case Granted:
		return appendNumberKey(append(dst, 'A'), r.Token, r.Key), Stay
	case TimedOut, Busy:
		return appendKey(append(dst, 'T'), r.Key), Stay
	case Released:
		return appendKey(append(dst, 'R'), r.Key), Stay
	case NotHeld, Mismatched:
		return appendKey(append(dst, 'N'), r.Key), Stay
	}
	addr := ""
	if r.Leader != nil {
		addr = r.Leader.Addr01
	}
	if r.Kind == LostQueued {
		return appendMoved(dst, addr), End
	}
	// Neither a notice nor a word to who is queued at a stop: these clients know no L, and would hand a T to the caller.
	return appendBareReply(dst, r, addr)
}

func appendKey(dst, key []byte) []byte {
	return append(append(dst, key...), lf)
}
