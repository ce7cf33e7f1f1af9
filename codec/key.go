package codec

import (
	"bytes"
	"encoding/binary"
	"time"
	"unicode/utf8"
)

// validKey says whether a key obeys the rule that all wires share. LF is not looked for: in a text frame it cannot be
// there. Every other byte may, NUL and CR included (PROTOCOL.md section 2).
func validKey(key []byte) bool {
	if len(key) == 0 || len(key) > MaxKeyBytes {
		return false
	}
	return plainKey(key) || bytes.IndexByte(key, ' ') < 0 && utf8.Valid(key)
}

// plainKey says whether a key is of ASCII without a space, as almost all are. It looks at eight bytes at a time, at some
// of the last eight perhaps twice. Against a search for a space and then utf8.Valid alone, a decode of a 17-byte key on
// v1 took 24 ns and not 36.
func plainKey(key []byte) bool {
	const (
		spaces = 0x2020202020202020
		ones   = 0x0101010101010101
		tops   = 0x8080808080808080
	)
	if len(key) < 8 {
		for _, c := range key {
			if c == ' ' || c >= utf8.RuneSelf {
				return false
			}
		}
		return true
	}
	// The top bit of a byte of word is set where it is no ASCII. Where it was a space, spaced is 0, and borrows.
	word := binary.LittleEndian.Uint64(key[len(key)-8:])
	spaced := word ^ spaces
	bad := word | (spaced-ones)&^spaced
	for ; len(key) > 8; key = key[8:] {
		word = binary.LittleEndian.Uint64(key)
		spaced = word ^ spaces
		bad |= word | (spaced-ones)&^spaced
	}
	return bad&tops == 0
}

// wait8 is the wait that a frame of v1 or 3 asks for.
func wait8(seconds byte) time.Duration {
	if seconds == 0 {
		return 0
	}
	return time.Duration(seconds)*time.Second - answerMargin
}

// wait16 is the wait that a frame of 0.3 or 0.1 asks for.
func wait16(seconds uint16) time.Duration {
	if seconds == 0 {
		return Forever
	}
	return time.Duration(seconds) * time.Second
}
