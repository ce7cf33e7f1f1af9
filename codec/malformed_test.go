package codec_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ticketing-go/ticketing/codec"
)

// malformed is a v1 frame that must be refused, with the reason that PROTOCOL.md section 2 gives for it and the number
// of bytes at which that can be told.
type malformed struct {
	frame  []byte
	reason error
	told   int
}

// malformedV1 makes them row by row of the table; nothing here asks the decoder.
func malformedV1() []malformed {
	var all []malformed
	whole := func(reason error, frame string) {
		all = append(all, malformed{[]byte(frame), reason, len(frame)})
	}
	const owner = "\x00\x00\x00\x00\x0a\x00\x00\x07"
	acquire := "A\x05\x1e" + owner
	release := "R" + owner

	for op := range 256 {
		if op != 'A' && op != 'R' && op != '\n' {
			all = append(all, malformed{[]byte(string([]byte{byte(op)}) + acquire[1:] + "seat-17\n"), codec.ErrBadOp, 1})
		}
	}
	for _, start := range []string{acquire, release, "A\x00\x00" + owner} {
		for long := 193; long < 213; long++ {
			frame := start + strings.Repeat("k", long-len(start)) + "\n"
			all = append(all, malformed{[]byte(frame), codec.ErrLineTooLong, 193})
		}
	}
	for _, lease := range []byte{0, 251, 252, 253, 254, 255} {
		for _, wait := range []byte{0, 1, '\n', 255} {
			for _, key := range []string{"k", "", "a b", "\xff", strings.Repeat("k", 129)} {
				whole(codec.ErrBadLease, string([]byte{'A', wait, lease})+owner+key+"\n")
			}
		}
	}
	for _, key := range malformedKeys() {
		whole(codec.ErrBadKey, acquire+key+"\n")
		whole(codec.ErrBadKey, release+key+"\n")
	}
	return all
}

func malformedKeys() []string {
	keys := []string{""}
	for long := 129; long <= 181; long++ {
		keys = append(keys, strings.Repeat("k", long))
	}
	// Broken forms and a space, alone and at each place among plain bytes, where the check looks at eight at a time.
	broken := []string{
		" ", "\xff", "\x80", "\xbf", "\xc0\xaf", "\xc1\xbf", "\xc2", "\xe0\x80\xaf", "\xe0\x9f\xbf", "\xed\xa0\x80",
		"\xed\xbf\xbf", "\xef\xbf", "\xf0\x80\x80\xaf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf8\x88\x80\x80\x80",
	}
	for _, b := range broken {
		keys = append(keys, b, "좌석"+b, b+"좌석")
		for at := range 18 {
			keys = append(keys, strings.Repeat("k", at)+b+strings.Repeat("k", 17-at))
		}
	}
	for at := range 7 {
		keys = append(keys, strings.Repeat("\x7f", at)+" "+strings.Repeat("!", 6-at))
	}
	return keys
}

// TestMalformedAtEverySplit: the verdict on a bad frame, with good ones round it, does not depend on how they arrive,
// and nothing behind it counts.
func TestMalformedAtEverySplit(t *testing.T) {
	all := malformedV1()
	if len(all) < 500 {
		t.Fatalf("only %d malformed frames", len(all))
	}
	t.Logf("%d malformed frames", len(all))
	before := codec.ClientV1.AppendRelease(nil, 0, 41, []byte("before"))
	behind := codec.ClientV1.AppendRelease(nil, 0, 42, []byte("behind"))
	for _, m := range all {
		stream := append(append(bytes.Clone(before), m.frame...), behind...)
		want := fmt.Sprintf("%q, then %v", []string{`release token=41 key="before"`}, m.reason)
		for cut := range stream {
			if got := inPieces(codec.V1, stream, cut).String(); got != want {
				t.Fatalf("%q cut at %d\n got %s\nwant %s", stream, cut, got, want)
			}
		}
		for cut := range m.frame {
			var r codec.Request
			n, err := codec.V1.Decode(m.frame[:cut:cut], &r)
			if n != 0 || cut < m.told && err != nil || cut >= m.told && !errors.Is(err, m.reason) {
				t.Fatalf("%d bytes of %q: %d, %v, want %v at byte %d", cut, m.frame, n, err, m.reason, m.told)
			}
		}
	}
}

// TestMalformedEverywhere: what the goldens call bad is bad at every split, on every wire.
func TestMalformedEverywhere(t *testing.T) {
	for _, w := range wires {
		for _, frame := range frames(t, w.file, "bad") {
			want := inPieces(w.wire, frame)
			if want.err == nil {
				t.Errorf("wire %s: %x is taken", w.wire.Name(), frame)
			}
			for cut := range frame {
				if got := inPieces(w.wire, frame, cut); got.String() != want.String() {
					t.Errorf("wire %s: %x cut at %d\n got %s\nwant %s", w.wire.Name(), frame, cut, got, want)
				}
			}
		}
	}
}

// TestEveryKeyByte tries each byte as a key of one byte, and at each place of a key of 17, on all wires.
func TestEveryKeyByte(t *testing.T) {
	for _, w := range wires {
		for c := range 128 {
			want := c != ' ' && c != '\n' && (c != '\r' || w.wire != codec.V3)
			for at := range 18 {
				key := []byte("seat-no-000000017")
				if at == 17 {
					key = []byte{byte(c)}
				} else {
					key[at] = byte(c)
				}
				var r codec.Request
				frame := w.client.AppendAcquire(nil, 7, 5, 30, key)
				_, err := w.wire.Decode(frame, &r)
				// A text frame ends at its first LF, so that the key is another.
				got := err == nil && r.Op == codec.Acquire && bytes.Equal(r.Key, key)
				if got != want {
					t.Errorf("wire %s: key %q: %v, %s, want it taken: %v", w.wire.Name(), key, err, describeRequest(&r), want)
				}
			}
		}
	}
}

// TestEveryLease tries each lease and wait of one byte, and those of two round the edges.
func TestEveryLease(t *testing.T) {
	for _, w := range wires {
		seconds := []uint16{0, 1, 2, 249, 250, 251, 255}
		if w.wire == codec.V03 || w.wire == codec.V01 {
			seconds = append(seconds, 256, 257, 512, 2570, 65280, 65534, 65535)
		}
		longest := uint16(w.wire.MaxLease().Seconds())
		for _, lease := range seconds {
			for _, wait := range seconds {
				frame := w.client.AppendAcquire(nil, 7, wait, lease, []byte("k"))
				checkReference(t, w.wire, frame)
				var r codec.Request
				_, err := w.wire.Decode(frame, &r)
				refused := errors.Is(err, codec.ErrBadLease) || r.Op == codec.Reject && r.Reason == codec.BadLease
				if refused != (lease == 0 || lease > longest) {
					t.Errorf("wire %s: lease %d: %v, %s", w.wire.Name(), lease, err, describeRequest(&r))
				}
			}
		}
	}
}
