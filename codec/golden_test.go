package codec_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ticketing-go/ticketing/codec"
)

// A golden is one block of a file in testdata, which README.md there explains: bytes, and what is said of them.
type golden struct {
	at    string // file and line
	says  [][]string
	bytes []byte
}

// goldens reads the blocks of one file.
func goldens(t testing.TB, file string) []golden {
	t.Helper()
	path := filepath.Join("testdata", file+".txt")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []golden
	inBytes := true
	for i, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		body := strings.HasPrefix(line, " ")
		line = strings.TrimSpace(line)
		switch {
		case line == "":
		case !body:
			if inBytes {
				all = append(all, golden{at: fmt.Sprintf("%s:%d", path, i+1)})
				inBytes = false
			}
			g := &all[len(all)-1]
			g.says = append(g.says, strings.Fields(line))
		default:
			inBytes = true
			g := &all[len(all)-1]
			line, _, _ = strings.Cut(line, ";")
			for line = strings.TrimSpace(line); line != "" && line != "-"; {
				var b []byte
				b, line = parseBytes(t, line)
				g.bytes = append(g.bytes, b...)
			}
		}
	}
	return all
}

// frames are the bytes of all blocks of a wire of which a line starts with one of the words.
func frames(t *testing.T, file string, words ...string) [][]byte {
	t.Helper()
	var all [][]byte
	for _, g := range goldens(t, file) {
		for _, says := range g.says {
			for _, word := range words {
				if says[0] == word {
					all = append(all, g.bytes)
				}
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no block of %q", file, words)
	}
	return all
}

func TestGolden(t *testing.T) {
	for _, w := range wires {
		t.Run(w.wire.Name(), func(t *testing.T) {
			for _, g := range goldens(t, w.file) {
				for _, says := range g.says {
					checkGolden(t, w.wire, w.client, g, says)
				}
			}
		})
	}
}

func checkGolden(t *testing.T, w codec.Wire, c codec.ClientWire, g golden, says []string) {
	t.Helper()
	words := says[1:]
	switch want := strings.Join(words, " "); says[0] {
	case "request":
		r := codec.Request{Op: codec.Reject, Flags: 0xff, Reason: codec.BadOp, ID: 99, Token: 99, Wait: 99, Lease: 99,
			Key: []byte("the last key"), Set: []byte("\x08the last")}
		n, err := w.Decode(g.bytes, &r)
		if got := describeRequest(&r); err != nil || n != len(g.bytes) || got != want {
			t.Errorf("%s: Decode(%x) = %d, %v\n got %s\nwant %s", g.at, g.bytes, n, err, got, want)
		}
		if words[0] == "reject" {
			return
		}
		if got := c.AppendRequest(nil, parseRequest(t, words)); !bytes.Equal(got, g.bytes) {
			t.Errorf("%s: AppendRequest(%s)\n got %x\nwant %x", g.at, want, got, g.bytes)
		}
	case "bad":
		var r codec.Request
		n, err := w.Decode(g.bytes, &r)
		if n != 0 || !hasReason(err, want) {
			t.Errorf("%s: Decode(%x) = %d, %v, want %s", g.at, g.bytes, n, err, want)
		}
	case "unfinished":
		r := codec.Request{ID: 99}
		n, err := w.Decode(g.bytes, &r)
		if n != 0 || err != nil || describeRequest(&r) != "keep-alive id=99" {
			t.Errorf("%s: Decode(%x) = %d, %v, %s, want to need more", g.at, g.bytes, n, err, describeRequest(&r))
		}
	case "reply", "last":
		after := codec.Stay
		if says[0] == "last" {
			after = codec.End
		}
		got, gotAfter := w.AppendReply([]byte("before "), parseReply(t, words))
		if want := append([]byte("before "), g.bytes...); !bytes.Equal(got, want) || gotAfter != after {
			t.Errorf("%s: AppendReply(%s)\n got %x, after %d\nwant %x, after %d", g.at, words, got, gotAfter, want, after)
		}
	case "heard":
		r := codec.Reply{Kind: codec.Left, Flags: 0xff, Reason: codec.BadOp, ID: 99, Token: 99,
			Key: []byte("the last key"), Leader: theLeader}
		n, err := c.DecodeReply(g.bytes, &r)
		if got := describeReply(&r); err != nil || n != len(g.bytes) || got != want {
			t.Errorf("%s: DecodeReply(%x) = %d, %v\n got %s\nwant %s", g.at, g.bytes, n, err, got, want)
		}
	case "misheard":
		var r codec.Reply
		if n, err := c.DecodeReply(g.bytes, &r); n != 0 || !hasReason(err, want) {
			t.Errorf("%s: DecodeReply(%x) = %d, %v, want %s", g.at, g.bytes, n, err, want)
		}
	case "fault":
		if got := w.AppendFault(nil, parseReason(t, want)); !bytes.Equal(got, g.bytes) {
			t.Errorf("%s: AppendFault(%s) = %x, want %x", g.at, want, got, g.bytes)
		}
	case "keep-alive":
		if got := w.AppendKeepAlive(nil); !bytes.Equal(got, g.bytes) {
			t.Errorf("%s: AppendKeepAlive = %x, want %x", g.at, got, g.bytes)
		}
	default:
		checkGoldenHandshake(t, w, c, g, says)
	}
}

func hasReason(err error, reason string) bool {
	var frame *codec.FrameError
	return errors.As(err, &frame) && frame.Reason.String() == reason
}
