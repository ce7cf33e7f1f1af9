package codec_test

import (
	"encoding/binary"
	"time"

	"github.com/ticketing-go/ticketing/codec"
)

// A slow, obvious decoder for each wire, written from the tables of PROTOCOL.md and WIRES.md and sharing nothing with
// the package: a byte arrives, and what can be said is said. Decode must agree with it on any bytes.

type verdict struct {
	n int
	r codec.Request
	// err is nil or the reason for it.
	err error
}

func reference(w codec.Wire, buf []byte) verdict {
	if w == codec.V3 {
		return reference3(buf)
	}
	for i, c := range buf {
		frame := buf[:i+1]
		if i == 0 {
			if c == '\n' {
				return verdict{n: 1}
			}
			if c != 'A' && c != 'R' {
				return verdict{err: codec.ErrBadOp}
			}
		}
		if i >= referenceHeader(w, buf[0]) && c == '\n' {
			return referenceText(w, frame)
		}
		if len(frame) == 193 {
			return verdict{err: codec.ErrLineTooLong}
		}
	}
	return verdict{}
}

func referenceHeader(w codec.Wire, op byte) int {
	switch w.Name() + string(op) {
	case "1A":
		return 11
	case "0.3A":
		return 13
	case "0.1A":
		return 5
	case "0.1R":
		return 1
	}
	return 9
}

// referenceText judges a frame that is there, LF included.
func referenceText(w codec.Wire, frame []byte) verdict {
	header := referenceHeader(w, frame[0])
	r := codec.Request{Key: frame[header : len(frame)-1]}
	fields := frame[1:header]
	if frame[0] == 'A' {
		r.Op = codec.Acquire
		var wait, lease int
		if w.Name() == "1" {
			wait, lease, fields = int(fields[0]), int(fields[1]), fields[2:]
			if lease > 250 {
				lease = 0
			}
			r.Wait = time.Duration(wait*1000-100) * time.Millisecond
			if wait == 0 {
				r.Wait = 0
			}
		} else {
			wait, lease, fields = int(fields[0])<<8|int(fields[1]), int(fields[2])<<8|int(fields[3]), fields[4:]
			r.Wait = time.Duration(wait) * time.Second
			if wait == 0 {
				r.Wait = codec.Forever
			}
		}
		if lease == 0 {
			return verdict{err: codec.ErrBadLease}
		}
		r.Lease = time.Duration(lease) * time.Second
		switch w.Name() {
		case "0.1":
			r.Flags = codec.ByKey | codec.InOrder
		case "0.3":
			r.ID = referenceU64(fields)
			if r.ID != 0 {
				r.Flags = codec.Idempotent
			}
		default:
			r.ID = referenceU64(fields)
		}
	} else {
		r.Op = codec.Release
		if w.Name() == "0.1" {
			r.Flags = codec.ByKey
		} else {
			r.Token = referenceU64(fields)
		}
	}
	if !referenceKey(r.Key, " ") {
		return verdict{err: codec.ErrBadKey}
	}
	return verdict{n: len(frame), r: r}
}

func reference3(buf []byte) verdict {
	if len(buf) == 0 {
		return verdict{}
	}
	ranges := map[byte][2]int{'A': {10, 138}, 'R': {16, 144}, 'S': {11, 2075}, 'G': {17, 2081}}
	limits, known := ranges[buf[0]]
	if !known {
		return verdict{err: codec.ErrBadOp}
	}
	if len(buf) < 3 {
		return verdict{}
	}
	length := int(buf[1])<<8 | int(buf[2])
	if length < limits[0] {
		return verdict{err: codec.ErrBadRequest}
	}
	if length > limits[1] {
		return verdict{err: codec.ErrLineTooLong}
	}
	if len(buf) < 3+length {
		return verdict{}
	}
	return reference3Body(buf[0], buf[3:3+length])
}

// reference3Body judges a frame that is there. Every check notes what it finds; the first in the table's order counts.
func reference3Body(op byte, body []byte) verdict {
	n := 3 + len(body)
	id, body := referenceU64(body[:8]), body[8:]
	r := codec.Request{ID: id}
	reasons := map[string]codec.Reason{}
	if op == 'A' || op == 'S' {
		r.Op = codec.Acquire
		if body[1] == 0 || body[1] > 250 {
			reasons["time"] = codec.BadLease
		}
		if body[0] > 0 {
			r.Wait = time.Duration(body[0])*time.Second - 100*time.Millisecond
		}
		r.Lease, body = time.Duration(body[1])*time.Second, body[2:]
	} else {
		r.Op = codec.Release
		if r.Token = referenceU64(body[:8]); r.Token == 0 {
			reasons["time"] = codec.BadToken
		}
		body = body[8:]
	}
	keys := []string{string(body)}
	if op == 'S' || op == 'G' {
		count, rest := int(body[0]), body[1:]
		keys = nil
		for len(rest) > 0 && int(rest[0]) < len(rest) {
			keys, rest = append(keys, string(rest[1:1+int(rest[0])])), rest[1+int(rest[0]):]
		}
		if len(rest) > 0 || len(keys) != count {
			return verdict{err: codec.ErrBadRequest}
		}
		if count < 1 || count > 16 {
			reasons["count"] = codec.BadKeySet
		}
		r.Flags, r.Set = codec.AsSet, body[1:]
	}
	if id == 0 {
		return verdict{err: codec.ErrBadRequest}
	}
	for i, key := range keys {
		if !referenceKey([]byte(key), " \r\n") {
			reasons["key"] = codec.BadKey
		}
		if i > 0 && keys[i-1] >= key {
			reasons["order"] = codec.BadKeySet
		}
	}
	for _, check := range []string{"time", "count", "key", "order"} {
		if reason, bad := reasons[check]; bad {
			return verdict{n: n, r: codec.Request{Op: codec.Reject, ID: id, Reason: reason}}
		}
	}
	if len(keys) == 1 {
		r.Key, r.Set = []byte(keys[0]), nil
	}
	return verdict{n: n, r: r}
}

func referenceU64(b []byte) uint64 { return binary.BigEndian.Uint64(b) }

func referenceKey(key []byte, refused string) bool {
	for at, c := range string(key) {
		if c == '\uFFFD' && string(key[at:min(at+3, len(key))]) != "\uFFFD" {
			return false
		}
		for _, no := range refused {
			if c == no {
				return false
			}
		}
	}
	return len(key) >= 1 && len(key) <= 128
}
