// Package frames is the client's side of wire v1, byte by byte, for measurements and drills. It is written apart from
// package codec, so that a mistake there cannot hide itself, and it checks nothing that it sends: drills send what no
// client may.
//
//	client                               server
//	       <- sha256 SP nonce LF
//	digest LF ->
//	A wait lease owner key LF ->
//	       <- A token owner key LF
//	R token key LF ->
//	       <- R token key LF
//
// It refuses to know connections. Every function may be called from any goroutine.
package frames

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// MaxBytes is the longest frame with its LF; a longer reply is a fault of the server.
const MaxBytes = 193

// Op is the first byte of a frame.
type Op byte

// The ops of PROTOCOL.md section 2; Acquire and Release are those of the replies Granted and Released as well.
const (
	KeepAlive Op = '\n'
	Acquire   Op = 'A'
	Release   Op = 'R'
	Granted   Op = 'A'
	Released  Op = 'R'
	TimedOut  Op = 'T'
	Busy      Op = 'B'
	NotHeld   Op = 'N'
	Moved     Op = 'M'
	Leader    Op = 'L'
	Error     Op = 'E'
)

// Errors of Decode and AppendAnswer.
var (
	ErrReply     = errors.New("frames: not a reply of wire v1")
	ErrChallenge = errors.New("frames: not a challenge of wire v1")
)

// Reply is one frame from the server. Text borrows the buffer it was decoded from.
type Reply struct {
	Op    Op
	Token uint64 // Granted, Released, NotHeld
	Owner uint64 // Granted, TimedOut, Busy
	Text  []byte // the key, the address (Moved, Leader) or the reason (Error)
}

// Decode decodes the frame at the start of buf into r. n is 0 while buf holds only a part of it, else the bytes it
// takes. An error says that these bytes are no frame.
func Decode(buf []byte, r *Reply) (n int, err error) {
	if len(buf) == 0 {
		return 0, nil
	}
	header := 1
	switch op := Op(buf[0]); op {
	case KeepAlive:
		*r = Reply{Op: op}
		return 1, nil
	case Granted:
		header = 17
	case Released, NotHeld, TimedOut, Busy:
		header = 9
	case Moved, Leader, Error:
	default:
		return 0, ErrReply
	}
	if len(buf) < header {
		return 0, nil
	}
	end := bytes.IndexByte(buf[header:min(len(buf), MaxBytes)], '\n')
	if end < 0 {
		if len(buf) >= MaxBytes {
			return 0, ErrReply
		}
		return 0, nil
	}
	*r = Reply{Op: Op(buf[0]), Text: buf[header : header+end]}
	switch r.Op {
	case Granted:
		r.Token, r.Owner = binary.BigEndian.Uint64(buf[1:]), binary.BigEndian.Uint64(buf[9:])
	case Released, NotHeld:
		r.Token = binary.BigEndian.Uint64(buf[1:])
	case TimedOut, Busy:
		r.Owner = binary.BigEndian.Uint64(buf[1:])
	}
	return header + end + 1, nil
}

// AppendAcquire appends an acquire. wait and lease are in seconds.
func AppendAcquire(dst []byte, wait, lease uint8, owner uint64, key []byte) []byte {
	dst = append(dst, byte(Acquire), wait, lease)
	dst = binary.BigEndian.AppendUint64(dst, owner)
	dst = append(dst, key...)
	return append(dst, '\n')
}

// AppendRelease appends a release.
func AppendRelease(dst []byte, token uint64, key []byte) []byte {
	dst = append(dst, byte(Release))
	dst = binary.BigEndian.AppendUint64(dst, token)
	dst = append(dst, key...)
	return append(dst, '\n')
}

// AppendAnswer appends the digest line that answers a challenge line, given without its LF, for a client token.
func AppendAnswer(dst, challenge, token []byte) ([]byte, error) {
	nonce, ok := bytes.CutPrefix(challenge, []byte("sha256 "))
	if !ok || len(nonce) != 8 {
		return dst, ErrChallenge
	}
	hash := sha256.New()
	hash.Write(token)
	hash.Write(nonce)
	dst = base64.RawURLEncoding.AppendEncode(dst, hash.Sum(nil))
	return append(dst, '\n'), nil
}
