package codec

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// V3 is wire 3, WIRES.md section 3: binary, with request ids and key sets.
var V3 Wire = wire3{}

const (
	wire3Header   = 1 + 2 // op, length of the body
	wire3Acquire  = 8 + 1 + 1
	wire3Release  = 8 + 8
	maxWire3Frame = wire3Header + wire3Release + 1 + MaxSetBytes

	wire3Magic   = "TCKCLI3\x00"
	wire3Version = 3
	wire3Context = "TCK/CLIENT/AUTH3"
	wire3Nonce   = 16
	wire3Hello   = len(wire3Magic) + 2 + 1 + 1 + wire3Nonce
	wire3Answer  = sha256.Size

	wire3Accepted = 1
	wire3Refused  = 0

	noSlot = 255 // M: unknown, L: none
)

// The longest body, the release of the largest set, fits the length's 16 bits.
const _ uint16 = maxWire3Frame

// wire3Code is the code of each reason, as WIRES.md section 3.3 numbers them.
var wire3Code = [...]byte{
	BadKey: 1, BadLease: 2, NotServing: 3, NoLeader: 4, BadKeySet: 5, GroupMismatch: 6, BadToken: 7,
}

// SingleFingerprint is what clients of a single server sign with, WIRES.md section 3.1.
func SingleFingerprint() [32]byte { return sha256.Sum256([]byte("ticketing/single/v3")) }

// ClusterFingerprint is what clients of the cluster with that id sign with, WIRES.md section 3.1.
func ClusterFingerprint(id [16]byte) [32]byte {
	return sha256.Sum256(append([]byte("ticketing/cluster/v3\x00"), id[:]...))
}

type wire3 struct{}

func (wire3) Name() string { return "3" }

func (wire3) MaxFrameBytes() int { return maxWire3Frame }

func (wire3) MaxLease() time.Duration { return maxLease8 }

func (wire3) AppendGreeting(dst []byte, g *Greeting) []byte {
	dst = append(dst, wire3Magic...)
	dst = binary.BigEndian.AppendUint16(dst, wire3Version)
	dst = append(dst, g.Mode, g.Slot)
	return append(dst, g.Nonce128[:]...)
}

func (wire3) DecodeAnswer(buf []byte) (answer []byte, n int, err error) {
	if len(buf) < wire3Answer {
		return nil, 0, nil
	}
	return buf[:wire3Answer:wire3Answer], wire3Answer, nil
}

func (wire3) AppendAnswer(dst []byte, token []byte, g *Greeting) []byte {
	return appendSignature(dst, token, g.Mode, g.Slot, &g.Fingerprint, g.Nonce128[:])
}

func appendSignature(dst, token []byte, mode, slot byte, fingerprint *[32]byte, nonce []byte) []byte {
	signed := make([]byte, 0, len(wire3Context)+2+1+len(fingerprint)+1+wire3Nonce)
	signed = append(signed, wire3Context...)
	signed = binary.BigEndian.AppendUint16(signed, wire3Version)
	signed = append(signed, mode)
	signed = append(signed, fingerprint[:]...)
	signed = append(signed, slot)
	signed = append(signed, nonce...)
	h := hmac.New(sha256.New, token)
	h.Write(signed)
	return h.Sum(dst)
}

func (wire3) AppendAccepted(dst []byte) []byte { return append(dst, wire3Accepted) }

func (wire3) AppendRefused(dst []byte) []byte { return append(dst, wire3Refused) }

// AppendKeepAlive appends nothing: an empty body is an error on this wire.
func (wire3) AppendKeepAlive(dst []byte) []byte { return dst }

// AppendFault appends nothing: no code of E fits a broken framing.
func (wire3) AppendFault(dst []byte, _ Reason) []byte { return dst }

func (wire3) Decode(buf []byte, r *Request) (n int, err error) {
	n, fixed, err := wire3Frame(buf)
	if n == 0 {
		return 0, err
	}
	op, body := buf[0], buf[wire3Header:n:n]
	id, keys := binary.BigEndian.Uint64(body), body[fixed:]
	asSet := op == 'S' || op == 'G'
	if id == 0 || asSet && !wire3Filled(keys) {
		return 0, ErrBadRequest
	}
	reason := NoReason
	acquire := op == 'A' || op == 'S'
	if acquire {
		if lease := body[9]; lease == 0 || lease > maxLeaseSeconds8 {
			reason = BadLease
		}
	} else if binary.BigEndian.Uint64(body[8:]) == 0 {
		reason = BadToken
	}
	if reason == NoReason {
		reason = wire3Keys(keys, asSet)
	}
	if reason != NoReason {
		*r = Request{Op: Reject, ID: id, Reason: reason}
		return n, nil
	}
	if acquire {
		*r = Request{Op: Acquire, ID: id, Wait: wait8(body[8]), Lease: time.Duration(body[9]) * time.Second}
	} else {
		*r = Request{Op: Release, ID: id, Token: binary.BigEndian.Uint64(body[8:])}
	}
	switch {
	case !asSet:
		r.Key = keys
	case keys[0] == 1:
		r.Flags, r.Key = AsSet, keys[2:]
	default:
		r.Flags, r.Set = AsSet, keys[1:]
	}
	return n, nil
}

// wire3Frame finds the end of the frame and the length of the part of its body that comes before the keys. n is 0 while
// the frame is not complete.
func wire3Frame(buf []byte) (n, fixed int, err error) {
	if len(buf) == 0 {
		return 0, 0, nil
	}
	var least, most int // of what follows the fixed part
	switch buf[0] {
	case 'A':
		fixed, most = wire3Acquire, MaxKeyBytes
	case 'R':
		fixed, most = wire3Release, MaxKeyBytes
	case 'S':
		fixed, least, most = wire3Acquire, 1, 1+MaxSetBytes
	case 'G':
		fixed, least, most = wire3Release, 1, 1+MaxSetBytes
	default:
		return 0, 0, ErrBadOp
	}
	if len(buf) < wire3Header {
		return 0, 0, nil
	}
	length := int(binary.BigEndian.Uint16(buf[1:]))
	if length < fixed+least {
		return 0, 0, ErrBadRequest
	}
	if length > fixed+most {
		return 0, 0, ErrLineTooLong
	}
	if len(buf) < wire3Header+length {
		return 0, 0, nil
	}
	return wire3Header + length, fixed, nil
}

// wire3Filled says whether the count and the lengths of a set fill it exactly.
func wire3Filled(set []byte) bool {
	rest := set[1:]
	for range set[0] {
		if len(rest) == 0 || len(rest) < 1+int(rest[0]) {
			return false
		}
		rest = rest[1+int(rest[0]):]
	}
	return len(rest) == 0
}

// wire3Keys checks a key, or a set that is exactly filled. A bad key anywhere comes before a bad order.
func wire3Keys(keys []byte, asSet bool) Reason {
	if !asSet {
		return wire3Key(keys)
	}
	if keys[0] == 0 || keys[0] > MaxSetKeys {
		return BadKeySet
	}
	reason := NoReason
	var before []byte // no key is empty, so the first is behind it
	for rest := keys[1:]; len(rest) > 0; {
		key := rest[1 : 1+int(rest[0])]
		if wire3Key(key) != NoReason {
			return BadKey
		}
		if bytes.Compare(before, key) >= 0 {
			reason = BadKeySet
		}
		before, rest = key, rest[1+len(key):]
	}
	return reason
}

func wire3Key(key []byte) Reason {
	if !validKey(key) || bytes.IndexByte(key, lf) >= 0 || bytes.IndexByte(key, '\r') >= 0 {
		return BadKey
	}
	return NoReason
}

func (wire3) AppendReply(dst []byte, r *Reply) ([]byte, After) {
	switch r.Kind {
	case Granted:
		op := byte('A')
		if r.Flags&AsSet != 0 {
			op = 'S'
		}
		dst = appendWire3(dst, op, 16, r.ID)
		dst = binary.BigEndian.AppendUint64(dst, r.Token)
	case TimedOut:
		dst = appendWire3(dst, 'T', 8, r.ID)
	case Busy:
		dst = appendWire3(dst, 'B', 8, r.ID)
	case Released:
		op := byte('R')
		if r.Flags&AsSet != 0 {
			op = 'G'
		}
		dst = appendWire3(dst, op, 8, r.ID)
	case NotHeld:
		dst = appendWire3(dst, 'N', 8, r.ID)
	case LostProposed:
		dst = appendWire3(dst, 'I', 8, r.ID)
	case Mismatched:
		dst = appendWire3Error(dst, r.ID, GroupMismatch)
	case Rejected:
		dst = appendWire3Error(dst, r.ID, r.Reason)
	case NotActive, StopQueued:
		dst = appendWire3Error(dst, r.ID, NotServing)
	case Moved, LostQueued:
		if r.Leader == nil {
			dst = appendWire3Error(dst, r.ID, NoLeader)
		} else {
			dst = append(appendWire3(dst, 'M', 9, r.ID), r.Leader.Slot)
		}
	case Notice:
		slot := byte(noSlot)
		if r.Leader != nil {
			slot = r.Leader.Slot
		}
		dst = append(dst, 'L', 0, 1, slot)
	}
	return dst, Stay
}

func appendWire3(dst []byte, op, length byte, id uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, op, 0, length), id)
}

func appendWire3Error(dst []byte, id uint64, reason Reason) []byte {
	return append(appendWire3(dst, 'E', 9, id), wire3Code[reason])
}
