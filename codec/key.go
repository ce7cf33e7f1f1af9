package codec

import (
	"bytes"
	"time"
	"unicode/utf8"
)

// validKey says whether a key obeys the rule that all wires share. LF is not looked for: in a text frame it cannot be
// there. Every other byte may, NUL and CR included (PROTOCOL.md section 2).
func validKey(key []byte) bool {
	return len(key)-1 < MaxKeyBytes && len(key) != 0 && bytes.IndexByte(key, ' ') < 0 && utf8.Valid(key)
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
