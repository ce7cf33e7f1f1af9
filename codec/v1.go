package codec

import (
	"encoding/binary"
	"time"
)

// V1 is the default wire, PROTOCOL.md sections 1 and 2.
var V1 Wire = v1{}

const v1AcquireHeader = 1 + 1 + 1 + 8 // op, wait, lease, owner

type v1 struct{ text }

func (v1) Name() string { return "1" }

func (v1) MaxLease() time.Duration { return maxLease8 }

func (v1) Decode(buf []byte, r *Request) (n int, err error) {
	if len(buf) == 0 {
		return 0, nil
	}
	switch buf[0] {
	case 'A':
		return decodeAcquireV1(buf, r)
	case 'R':
		return decodeTokenRelease(buf, r)
	case lf:
		*r = Request{Op: KeepAlive}
		return 1, nil
	}
	return 0, ErrBadOp
}

func decodeAcquireV1(buf []byte, r *Request) (n int, err error) {
	end, err := textEnd(buf, v1AcquireHeader)
	if end == 0 {
		return 0, err
	}
	lease := buf[2]
	if lease == 0 || lease > maxLeaseSeconds8 {
		return 0, ErrBadLease
	}
	key := buf[v1AcquireHeader:end:end]
	if !validKey(key) {
		return 0, ErrBadKey
	}
	*r = Request{
		Op:    Acquire,
		ID:    binary.BigEndian.Uint64(buf[3:]),
		Wait:  wait8(buf[1]),
		Lease: time.Duration(lease) * time.Second,
		Key:   key,
	}
	return end + 1, nil
}

func (v1) AppendReply(dst []byte, r *Reply) ([]byte, After) {
	addr := ""
	if r.Leader != nil {
		addr = r.Leader.Addr
	}
	return appendOwnerReply(dst, r, addr)
}
