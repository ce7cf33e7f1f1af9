package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ticketing-go/ticketing/bench/frames"
)

// unique stands in the keys of a malformed conversation for eight characters that no other connection sends, so that
// every acquire finds its key free.
const unique = "########"

// foreign is a token that no server issues in the time of a drill, even with some bytes changed.
const foreign = 0xfefefefefefefefe

// talk is what a client sends after its handshake, which ends with a frame that breaks a rule, and what it must get.
type talk struct {
	in   []byte
	want string // replies in order of text, but the error, which comes last
	slow bool   // the verdict comes by the frame timer, 5 s after the first byte
}

// tell is how a reply stands in want.
func tell(op frames.Op, text []byte) string { return fmt.Sprintf("%c%q", op, text) }

// verdict follows PROTOCOL.md: what a server must answer to in, and whether it takes the timer. ok is false where the
// answer hangs on more than these bytes, or where they end the conversation without an error.
func verdict(in []byte) (t talk, ok bool) {
	var replies []string
	held := make(map[string]bool)
	queued := false
	finish := func(reason string, slow bool) (talk, bool) {
		slices.Sort(replies)
		return talk{in: in, want: strings.Join(append(replies, tell(frames.Error, []byte(reason))), " "), slow: slow}, !slow || !queued
	}
	for rest := in; len(rest) > 0; {
		header := 0
		switch rest[0] {
		case '\n':
			rest = rest[1:]
			continue
		case 'A':
			header = 11
		case 'R':
			header = 9
		default:
			return finish("bad_op", false)
		}
		end := -1
		if len(rest) > header {
			end = bytes.IndexByte(rest[header:], '\n')
		}
		switch {
		case end < 0 && len(rest) > 192 || header+end > 192:
			return finish("line_too_long", false)
		case end < 0:
			return finish("bad_request", true)
		}
		frame, key := rest[:header+end], rest[header:header+end]
		rest = rest[header+end+1:]
		if frame[0] == 'A' && (frame[2] == 0 || frame[2] > 250) {
			return finish("bad_lease", false)
		}
		if len(key) == 0 || len(key) > 128 || bytes.IndexByte(key, ' ') >= 0 || !utf8.Valid(key) {
			return finish("bad_key", false)
		}
		switch {
		case frame[0] == 'R' && binary.BigEndian.Uint64(frame[1:]) < 1<<56:
			return t, false // may be a token that was issued
		case frame[0] == 'A' && frame[2] > 5:
			return t, false // held for longer than a drill should wait for its keys to be free
		case frame[0] == 'R':
			replies = append(replies, tell(frames.NotHeld, key))
		case !bytes.Contains(key, []byte(unique)):
			return t, false
		case !held[string(key)]:
			held[string(key)] = true
			replies = append(replies, tell(frames.Granted, key))
		case frame[1] == 0:
			replies = append(replies, tell(frames.TimedOut, key))
		default:
			queued = true // it leaves the queue unanswered
		}
	}
	return t, false
}

// corpus is the listed conversations and as many mutations of legal ones.
func corpus(random *rand.Rand, mutations int) []talk {
	var all []talk
	add := func(in []byte) {
		t, ok := verdict(in)
		if !ok {
			panic(fmt.Sprintf("hostile: the listed conversation %q has no verdict", in))
		}
		all = append(all, t)
	}
	for _, in := range listed() {
		add(in)
	}
	for range mutations {
		in := mutate(random)
		t, ok := verdict(in)
		if !ok {
			in = append(in, '!') // legal to its end, or nearly: end it by an op that is none
			if t, ok = verdict(in); !ok {
				continue
			}
		}
		all = append(all, t)
	}
	return all
}

func acquire(wait, lease byte, key string) []byte {
	return frames.AppendAcquire(nil, wait, lease, 0x0a0a0a0a0a0a0a0a, []byte(key))
}

func release(key string) []byte { return frames.AppendRelease(nil, foreign, []byte(key)) }

// listed are the conversations that break one rule each, or two to see which counts.
func listed() [][]byte {
	var all [][]byte
	for op := range 256 {
		if b := byte(op); b != 'A' && b != 'R' && b != '\n' {
			all = append(all, append([]byte{b}, "seat\n"...))
		}
	}
	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "*1\r\n$4\r\nPING\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"\n\n\nX", "\n\r\n", string(make([]byte, 300)),
	} {
		all = append(all, []byte(text))
	}
	for _, lease := range []byte{0, 251, 252, 253, 254, 255} {
		for _, wait := range []byte{0, 1, '\n', 255} {
			all = append(all, acquire(wait, lease, "seat"), acquire(wait, lease, ""), acquire(wait, lease, "a b"))
		}
		all = append(all, append(acquire(0, 5, unique), acquire(0, lease, unique)...))
	}
	long := strings.Repeat("k", 256)
	for _, key := range []string{
		"", " ", " a", "a ", "a b", "\xff", "a\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "a\x80", "\xfe\xfe",
		long[:129], long[:130], long[:150], long[:180], long[:181],
	} {
		all = append(all, acquire(0, 5, key), release(key), append(acquire(0, 5, unique), release(key)...))
	}
	for _, n := range []int{182, 183, 256} {
		all = append(all, acquire(0, 5, long[:n]), acquire(0, 0, long[:n]), acquire(0, 5, long[:n])[:11+n])
	}
	for _, n := range []int{184, 185, 256} {
		all = append(all, release(long[:n]), append(release("seat"), release(long[:n])...))
	}
	for _, frame := range [][]byte{acquire('\n', 5, unique), release(unique)} {
		for n := 1; n < len(frame); n++ {
			all = append(all, frame[:n], append(append(release("seat"), '\n'), frame[:n]...))
		}
	}
	all = append(all,
		acquire(0, 5, long[:181])[:192], release(long[:183])[:192], // 192 bytes and nothing more
		slices.Concat(acquire(0, 5, unique), acquire(0, 5, unique), acquire(9, 5, unique), []byte("?"), acquire(0, 5, "x"+unique)),
		slices.Concat(acquire(0, 5, unique+"\r\x00"), release("\x00"), []byte("a")),
	)
	return all
}

// mutate changes some bytes of a few legal frames, or takes bytes away, or puts some in.
func mutate(random *rand.Rand) []byte {
	var in []byte
	for range 1 + random.IntN(3) {
		switch random.IntN(3) {
		case 0:
			in = append(in, release("seat-"+strings.Repeat("é", random.IntN(60)))...)
		default:
			in = append(in, acquire(byte(9*random.IntN(2)), 5, unique+strings.Repeat("x", random.IntN(40)))...)
		}
	}
	for range 1 + random.IntN(3) {
		at := random.IntN(len(in))
		switch random.IntN(3) {
		case 0:
			in[at] = byte(random.IntN(256))
		case 1:
			in = slices.Delete(in, at, at+1)
		case 2:
			in = slices.Insert(in, at, byte(random.IntN(256)))
		}
	}
	return in
}
