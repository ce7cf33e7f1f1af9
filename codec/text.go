package codec

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

const (
	lf = '\n'

	tokenHeader = 1 + 8     // op, token or owner
	grantHeader = 1 + 8 + 8 // op, token, owner
	opHeader    = 1         // op

	greetingStart = "sha256 "
	digestChars   = 43 // base64url of 32 bytes without padding
	nonceChars    = 8  // base64url of 6 bytes
)

// text is what the wires v1, 0.3 and 0.1 share: the handshake, the end of a frame, and the frames without a header.
type text struct{}

func (text) MaxFrameBytes() int { return MaxTextFrame + 1 }

func (text) AppendGreeting(dst []byte, g *Greeting) []byte {
	dst = append(dst, greetingStart...)
	dst = base64.RawURLEncoding.AppendEncode(dst, g.Nonce48[:])
	return append(dst, lf)
}

func (text) DecodeAnswer(buf []byte) (answer []byte, n int, err error) {
	end := bytes.IndexByte(buf[:min(len(buf), MaxHandshakeLine+1)], lf)
	if end < 0 {
		if len(buf) > MaxHandshakeLine {
			return nil, 0, ErrAuthFailed
		}
		return nil, 0, nil
	}
	if end != digestChars {
		return nil, 0, ErrAuthFailed
	}
	for _, c := range buf[:end] {
		if !isBase64URL(c) {
			return nil, 0, ErrAuthFailed
		}
	}
	return buf[:end:end], end + 1, nil
}

func (text) AppendAnswer(dst []byte, token []byte, g *Greeting) []byte {
	var nonce [nonceChars]byte
	base64.RawURLEncoding.Encode(nonce[:], g.Nonce48[:])
	return appendDigest(dst, token, nonce[:])
}

func (text) AppendAccepted(dst []byte) []byte { return dst }

func (text) AppendRefused(dst []byte) []byte { return appendError(dst, AuthFailed) }

func (text) AppendKeepAlive(dst []byte) []byte { return append(dst, lf) }

func (text) AppendFault(dst []byte, reason Reason) []byte { return appendError(dst, reason) }

// appendDigest appends the answer to a challenge, whose nonce is hashed as it stands.
func appendDigest(dst, token, nonce []byte) []byte {
	// A token has at most 256 bytes (OPERATIONS.md): no allocation.
	var room [256 + nonceChars]byte
	sum := sha256.Sum256(append(append(room[:0], token...), nonce...))
	return base64.RawURLEncoding.AppendEncode(dst, sum[:])
}

func isBase64URL(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// textEnd finds the LF of a frame whose header has the length given. end is 0 while the frame is not complete.
func textEnd(buf []byte, header int) (end int, err error) {
	if len(buf) <= header {
		return 0, nil
	}
	if i := bytes.IndexByte(buf[header:min(len(buf), MaxTextFrame+1)], lf); i >= 0 {
		return header + i, nil
	}
	if len(buf) > MaxTextFrame {
		return 0, ErrLineTooLong
	}
	return 0, nil
}

// decodeTokenRelease decodes the release of v1 and 0.3.
func decodeTokenRelease(buf []byte, r *Request) (n int, err error) {
	end, err := textEnd(buf, tokenHeader)
	if end == 0 {
		return 0, err
	}
	key := buf[tokenHeader:end:end]
	if !validKey(key) {
		return 0, ErrBadKey
	}
	*r = Request{Op: Release, Token: binary.BigEndian.Uint64(buf[1:]), Key: key}
	return end + 1, nil
}

// appendOwnerReply appends the replies of v1 and 0.3; addr is the leader's on that wire, empty if none is known.
func appendOwnerReply(dst []byte, r *Reply, addr string) ([]byte, After) {
	switch r.Kind {
	case Granted:
		dst = append(dst, 'A')
		dst = binary.BigEndian.AppendUint64(dst, r.Token)
		return appendNumberKey(dst, r.ID, r.Key), Stay
	case TimedOut:
		return appendNumberKey(append(dst, 'T'), r.ID, r.Key), Stay
	case Busy, LostQueued, StopQueued:
		return appendNumberKey(append(dst, 'B'), r.ID, r.Key), Stay
	case Released:
		return appendNumberKey(append(dst, 'R'), r.Token, r.Key), Stay
	case NotHeld, Mismatched:
		return appendNumberKey(append(dst, 'N'), r.Token, r.Key), Stay
	case Notice:
		if addr == "" || len(addr) > MaxAddrBytes {
			return dst, Stay
		}
		return appendText(append(dst, 'L'), addr), Stay
	}
	return appendBareReply(dst, r, addr)
}

// appendBareReply appends the replies that all text wires say alike: those without a key.
func appendBareReply(dst []byte, r *Reply, addr string) ([]byte, After) {
	switch r.Kind {
	case Moved:
		return appendMoved(dst, addr), Stay
	case LostProposed:
		return appendMoved(dst, addr), End
	case NotActive, Stopping:
		return appendError(dst, NotServing), Stay
	}
	return dst, Stay
}

func appendNumberKey(dst []byte, number uint64, key []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, number)
	dst = append(dst, key...)
	return append(dst, lf)
}

func appendMoved(dst []byte, addr string) []byte {
	if addr == "" || len(addr) > MaxAddrBytes {
		return appendError(dst, NoLeader)
	}
	return appendText(append(dst, 'M'), addr)
}

func appendError(dst []byte, reason Reason) []byte {
	return appendText(append(dst, 'E'), reason.String())
}

func appendText(dst []byte, s string) []byte {
	return append(append(dst, s...), lf)
}
