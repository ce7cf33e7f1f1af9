package codec

import (
	"encoding/binary"
	"time"
)

// V03 is wire 0.3, WIRES.md section 4: v1 with longer times, on which an owner names its acquire.
var V03 Wire = wire03{}

const wire03AcquireHeader = 1 + 2 + 2 + 8 // op, wait, lease, owner

type wire03 struct{ text }

func (wire03) Name() string { return "0.3" }

func (wire03) MaxLease() time.Duration { return maxLease16 }

func (wire03) Decode(buf []byte, r *Request) (n int, err error) {
	if len(buf) == 0 {
		return 0, nil
	}
	switch buf[0] {
	case 'A':
		return decodeAcquire03(buf, r)
	case 'R':
		return decodeTokenRelease(buf, r)
	case lf:
		*r = Request{Op: KeepAlive}
		return 1, nil
	}
	return 0, ErrBadOp
}

func decodeAcquire03(buf []byte, r *Request) (n int, err error) {
	end, err := textEnd(buf, wire03AcquireHeader)
	if end == 0 {
		return 0, err
	}
	lease := binary.BigEndian.Uint16(buf[3:])
	if lease == 0 {
		return 0, ErrBadLease
	}
	key := buf[wire03AcquireHeader:end:end]
	if !validKey(key) {
		return 0, ErrBadKey
	}
	owner := binary.BigEndian.Uint64(buf[5:])
	*r = Request{
		Op:    Acquire,
		ID:    owner,
		Wait:  wait16(binary.BigEndian.Uint16(buf[1:])),
		Lease: time.Duration(lease) * time.Second,
		Key:   key,
	}
	// Owner 0 is nobody: it names nothing.
	if owner != 0 {
		r.Flags = Idempotent
	}
	return end + 1, nil
}

func (wire03) AppendReply(dst []byte, r *Reply) ([]byte, After) {
	addr := ""
	if r.Leader != nil {
		addr = r.Leader.Addr03
	}
	if r.Kind == LostQueued {
		// No B: the client sends the acquire again elsewhere, and the answer is the copy's.
		return appendMoved(dst, addr), End
	}
	return appendOwnerReply(dst, r, addr)
}
