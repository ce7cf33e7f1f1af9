package codec

import (
	"bytes"
	"encoding/binary"
)

func (text) MaxReplyBytes() int { return MaxTextFrame + 1 }

func (text) DecodeChallenge(buf []byte, c *Challenge) (n int, err error) {
	end := bytes.IndexByte(buf[:min(len(buf), MaxHandshakeLine+1)], lf)
	if end < 0 {
		if len(buf) > MaxHandshakeLine {
			return 0, ErrBadRequest
		}
		return 0, nil
	}
	// The nonce is all that stands behind the first space, of whatever form (PROTOCOL.md section 1).
	nonce, known := bytes.CutPrefix(buf[:end:end], []byte(greetingStart))
	if !known {
		return 0, ErrBadRequest
	}
	c.Nonce = nonce
	return end + 1, nil
}

func (text) AppendLogin(dst, token []byte, c *Challenge) []byte {
	return append(appendDigest(dst, token, c.Nonce), lf)
}

func (text) DecodeOutcome([]byte) (n int, known bool, err error) { return 0, true, nil }

// appendTokenRelease appends the release of v1 and 0.3.
func appendTokenRelease(dst []byte, token uint64, key []byte) []byte {
	return appendNumberKey(append(dst, 'R'), token, key)
}

// decodeOwnerReply decodes the replies of v1 and 0.3. leader makes one of an address.
func decodeOwnerReply(buf []byte, r *Reply, leader func(addr string) *Leader) (n int, err error) {
	if len(buf) == 0 {
		return 0, nil
	}
	header := tokenHeader
	switch buf[0] {
	case 'A':
		header = grantHeader
	case 'T', 'B', 'R', 'N':
	case 'L':
		header = opHeader
	default:
		return decodeBareReply(buf, r, leader)
	}
	end, err := textEnd(buf, header)
	if end == 0 {
		return 0, err
	}
	rest := buf[header:end:end]
	if buf[0] == 'L' {
		return decodeLeader(rest, end+1, r, Notice, leader)
	}
	if !validKey(rest) {
		return 0, ErrBadKey
	}
	number := binary.BigEndian.Uint64(buf[1:])
	switch buf[0] {
	case 'A':
		if number == 0 {
			return 0, ErrBadRequest
		}
		*r = Reply{Kind: Granted, Token: number, ID: binary.BigEndian.Uint64(buf[9:]), Key: rest}
	case 'T':
		*r = Reply{Kind: TimedOut, ID: number, Key: rest}
	case 'B':
		*r = Reply{Kind: Busy, ID: number, Key: rest}
	case 'R':
		*r = Reply{Kind: Released, Token: number, Key: rest}
	case 'N':
		*r = Reply{Kind: NotHeld, Token: number, Key: rest}
	}
	return end + 1, nil
}

// decodeBareReply decodes the frames that all text wires have: M, E and the empty one.
func decodeBareReply(buf []byte, r *Reply, leader func(addr string) *Leader) (n int, err error) {
	switch buf[0] {
	case lf:
		*r = Reply{}
		return 1, nil
	case 'M', 'E':
	default:
		return 0, ErrBadOp
	}
	end, err := textEnd(buf, opHeader)
	if end == 0 {
		return 0, err
	}
	rest := buf[opHeader:end:end]
	if buf[0] == 'M' {
		return decodeLeader(rest, end+1, r, Moved, leader)
	}
	for reason := BadOp; reason <= NoLeader; reason++ {
		if string(rest) == reasonText[reason] {
			*r = errorReply(reason)
			return end + 1, nil
		}
	}
	return 0, ErrBadRequest
}

func decodeLeader(addr []byte, n int, r *Reply, kind Kind, leader func(addr string) *Leader) (int, error) {
	if len(addr) == 0 {
		return 0, ErrBadRequest
	}
	*r = Reply{Kind: kind, Leader: leader(string(addr))}
	return n, nil
}

// errorReply is what an E with that reason says.
func errorReply(reason Reason) Reply {
	switch reason {
	case NotServing:
		return Reply{Kind: NotActive}
	case NoLeader:
		return Reply{Kind: Moved}
	case GroupMismatch:
		return Reply{Kind: Mismatched}
	}
	return Reply{Kind: Rejected, Reason: reason}
}
