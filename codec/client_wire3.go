package codec

import (
	"bytes"
	"encoding/binary"
)

func (wire3) MaxReplyBytes() int { return wire3Header + 8 + 8 }

func (wire3) DecodeChallenge(buf []byte, c *Challenge) (n int, err error) {
	if magic := buf[:min(len(buf), len(wire3Magic))]; string(magic) != wire3Magic[:len(magic)] {
		return 0, ErrBadRequest
	}
	if len(buf) < wire3Hello {
		return 0, nil
	}
	at := len(wire3Magic)
	mode, slot := buf[at+2], buf[at+3]
	if binary.BigEndian.Uint16(buf[at:]) != wire3Version || mode > 1 || (mode == 0) != (slot == noSlot) {
		return 0, ErrBadRequest
	}
	c.Mode, c.Slot, c.Nonce = mode, slot, buf[at+4:wire3Hello:wire3Hello]
	if mode == 0 {
		c.Fingerprint = SingleFingerprint()
	}
	return wire3Hello, nil
}

func (wire3) AppendLogin(dst, token []byte, c *Challenge) []byte {
	return appendSignature(dst, token, c.Mode, c.Slot, &c.Fingerprint, c.Nonce)
}

func (wire3) DecodeOutcome(buf []byte) (n int, known bool, err error) {
	if len(buf) == 0 {
		return 0, false, nil
	}
	switch buf[0] {
	case wire3Accepted:
		return 1, true, nil
	case wire3Refused:
		return 1, true, ErrAuthFailed
	}
	return 0, true, ErrBadRequest
}

func (wire3) AppendAcquire(dst []byte, id uint64, wait, lease uint16, key []byte) []byte {
	dst = appendWire3Request(dst, 'A', wire3Acquire+len(key), id)
	return append(append(dst, byte(wait), byte(lease)), key...)
}

func (wire3) AppendRelease(dst []byte, id, token uint64, key []byte) []byte {
	dst = appendWire3Request(dst, 'R', wire3Release+len(key), id)
	return append(binary.BigEndian.AppendUint64(dst, token), key...)
}

func (w wire3) AppendRequest(dst []byte, r *Request) []byte {
	wait, lease := wholeSeconds(r.Wait, 255), wholeSeconds(r.Lease, maxLeaseSeconds8)
	asSet := r.Flags&AsSet != 0 || r.Set != nil
	switch {
	case r.Op == Acquire && asSet:
		dst = appendWire3Request(dst, 'S', wire3Acquire+setBytes(r), r.ID)
		return appendSet(append(dst, byte(wait), byte(lease)), r)
	case r.Op == Release && asSet:
		dst = appendWire3Request(dst, 'G', wire3Release+setBytes(r), r.ID)
		return appendSet(binary.BigEndian.AppendUint64(dst, r.Token), r)
	case r.Op == Acquire:
		return w.AppendAcquire(dst, r.ID, wait, lease, r.Key)
	case r.Op == Release:
		return w.AppendRelease(dst, r.ID, r.Token, r.Key)
	}
	return dst
}

func appendWire3Request(dst []byte, op byte, length int, id uint64) []byte {
	dst = binary.BigEndian.AppendUint16(append(dst, op), uint16(length))
	return binary.BigEndian.AppendUint64(dst, id)
}

// setBytes is the length of the keys of r as a set: a count, and each behind its length.
func setBytes(r *Request) int {
	if r.Set != nil {
		return 1 + len(r.Set)
	}
	return 1 + 1 + len(r.Key)
}

func appendSet(dst []byte, r *Request) []byte {
	if r.Set == nil {
		return append(append(dst, 1, byte(len(r.Key))), r.Key...)
	}
	count := 0
	for rest := r.Set; len(rest) > 0; rest = rest[1+int(rest[0]):] {
		count++
	}
	return append(append(dst, byte(count)), r.Set...)
}

func (wire3) DecodeReply(buf []byte, r *Reply) (n int, err error) {
	if len(buf) == 0 {
		return 0, nil
	}
	op, length := buf[0], 8
	switch op {
	case 'A', 'S':
		length = 16
	case 'M', 'E':
		length = 9
	case 'L':
		length = 1
	case 'T', 'B', 'R', 'G', 'N', 'I':
	default:
		return 0, ErrBadOp
	}
	if len(buf) < wire3Header {
		return 0, nil
	}
	if int(binary.BigEndian.Uint16(buf[1:])) != length {
		return 0, ErrBadRequest
	}
	n = wire3Header + length
	if len(buf) < n {
		return 0, nil
	}
	body := buf[wire3Header:n]
	if op == 'L' {
		*r = Reply{Kind: Notice, Leader: slotLeader(body[0])}
		return n, nil
	}
	if err := decodeWire3Reply(op, body, r); err != nil {
		return 0, err
	}
	return n, nil
}

func decodeWire3Reply(op byte, body []byte, r *Reply) error {
	id := binary.BigEndian.Uint64(body)
	if id == 0 {
		return ErrBadRequest
	}
	switch op {
	case 'A', 'S':
		token := binary.BigEndian.Uint64(body[8:])
		if token == 0 {
			return ErrBadRequest
		}
		*r = Reply{Kind: Granted, Token: token}
	case 'T':
		*r = Reply{Kind: TimedOut}
	case 'B':
		*r = Reply{Kind: Busy}
	case 'R', 'G':
		*r = Reply{Kind: Released}
	case 'N':
		*r = Reply{Kind: NotHeld}
	case 'I':
		*r = Reply{Kind: LostProposed}
	case 'M':
		*r = Reply{Kind: Moved, Leader: slotLeader(body[8])}
	case 'E':
		reason := bytes.IndexByte(wire3Code[:], body[8])
		if body[8] == 0 || reason < 0 {
			return ErrBadRequest
		}
		*r = errorReply(Reason(reason))
	}
	if op == 'S' || op == 'G' {
		r.Flags = AsSet
	}
	r.ID = id
	return nil
}

func slotLeader(slot uint8) *Leader {
	if slot == noSlot {
		return nil
	}
	return &Leader{Slot: slot}
}
