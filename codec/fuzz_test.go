package codec_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ticketing-go/ticketing/codec"
)

func FuzzDecodeV1(f *testing.F)  { fuzzDecode(f, 0) }
func FuzzDecodeV3(f *testing.F)  { fuzzDecode(f, 1) }
func FuzzDecodeV03(f *testing.F) { fuzzDecode(f, 2) }
func FuzzDecodeV01(f *testing.F) { fuzzDecode(f, 3) }

// fuzzDecode feeds a stream whole and in random pieces: both must come to the same, no Decode may look behind the end of
// what it is given (session sees to that), each frame must be what the reference says, and a request must make the very
// frame that it was decoded from.
func fuzzDecode(f *testing.F, wire int) {
	w := wires[wire]
	f.Add([]byte{}, uint64(0))
	for _, g := range allFrames(f, w.file) {
		f.Add(g, uint64(len(g)))
		f.Add(slices.Concat(g, g), uint64(1))
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		// session copies what is left at every frame: a megabyte of keep-alives would take minutes.
		stream = stream[:min(len(stream), 4<<10)]
		want := inPieces(w.wire, stream).String()
		if got := inPieces(w.wire, stream, randomCuts(len(stream), seed)...).String(); got != want {
			t.Fatalf("%x\nin pieces %s\n    whole %s", stream, got, want)
		}
		for rest := stream; ; {
			checkReference(t, w.wire, rest)
			var r codec.Request
			n, err := w.wire.Decode(rest, &r)
			if n == 0 {
				return
			}
			if n > len(rest) || err != nil || n > w.wire.MaxFrameBytes() {
				t.Fatalf("Decode(%x) = %d, %v", rest, n, err)
			}
			if frame := w.client.AppendRequest(nil, &r); r.Op != codec.Reject && !bytes.Equal(frame, rest[:n]) {
				t.Fatalf("%s was decoded from %x, and makes %x", describeRequest(&r), rest[:n], frame)
			}
			rest = rest[n:]
		}
	})
}

// FuzzReply does for the client's side what fuzzDecode does for the server's.
func FuzzReply(f *testing.F) {
	for wire, w := range wires {
		for _, g := range allFrames(f, w.file) {
			f.Add(g, uint64(wire))
		}
	}
	f.Fuzz(func(t *testing.T, buf []byte, wire uint64) {
		w := wires[wire%uint64(len(wires))]
		var r codec.Reply
		n, err := w.client.DecodeReply(slices.Clip(bytes.Clone(buf)), &r)
		if n > len(buf) || n > w.client.MaxReplyBytes() || n != 0 && err != nil {
			t.Fatalf("wire %s: DecodeReply(%x) = %d, %v", w.client.Name(), buf, n, err)
		}
		for cut := range n {
			if short, err := w.client.DecodeReply(slices.Clip(bytes.Clone(buf[:cut])), &codec.Reply{}); short != 0 || err != nil {
				t.Fatalf("wire %s: DecodeReply(%x), a part of %x, = %d, %v", w.client.Name(), buf[:cut], buf[:n], short, err)
			}
		}
		// What was heard can be said again, in the same bytes but for E and M, which several kinds share.
		if n > 0 && r.Kind != 0 {
			again, _ := w.wire.AppendReply(nil, &r)
			var same codec.Reply
			if _, err := w.client.DecodeReply(again, &same); r.Kind != codec.Rejected && (err != nil || describeReply(&same) != describeReply(&r)) {
				t.Fatalf("wire %s: %s from %x, said again %x: %s, %v", w.client.Name(), describeReply(&r), buf[:n], again, describeReply(&same), err)
			}
		}
	})
}

// FuzzHandshake feeds both sides of it, whole and in pieces.
func FuzzHandshake(f *testing.F) {
	for wire, w := range wires {
		f.Add(w.wire.AppendGreeting(nil, greetings["cluster"]), uint64(wire))
		for _, g := range allFrames(f, w.file) {
			f.Add(g, uint64(wire))
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		w := wires[seed%uint64(len(wires))]
		stream = stream[:min(len(stream), 4<<10)]
		cuts := append(randomCuts(len(stream), seed), len(stream))
		answer := func(buf []byte) (string, int, error) {
			a, n, err := w.wire.DecodeAnswer(buf)
			return string(a), n, err
		}
		challenge := func(buf []byte) (string, int, error) {
			var c codec.Challenge
			n, err := w.client.DecodeChallenge(buf, &c)
			return string(c.Nonce), n, err
		}
		for _, decode := range []func([]byte) (string, int, error){answer, challenge} {
			text, n, err := decode(slices.Clip(bytes.Clone(stream)))
			if n > len(stream) || n != 0 && err != nil || n > codec.MaxHandshakeLine+1 {
				t.Fatalf("wire %s: %q: %q, %d, %v", w.wire.Name(), stream, text, n, err)
			}
			for _, cut := range cuts {
				shorter, m, shortErr := decode(slices.Clip(bytes.Clone(stream[:cut])))
				needsMore := m == 0 && shortErr == nil
				if !needsMore && (shorter != text || m != n || !errors.Is(shortErr, err)) || n > 0 && needsMore == (cut >= n) {
					t.Fatalf("wire %s: %q: %q, %d, %v, but its first %d bytes: %q, %d, %v",
						w.wire.Name(), stream, text, n, err, cut, shorter, m, shortErr)
				}
			}
		}
	})
}

// allFrames are the bytes of all blocks of a file.
func allFrames(f *testing.F, file string) [][]byte {
	var all [][]byte
	for _, g := range goldens(f, file) {
		all = append(all, g.bytes)
	}
	return all
}

// randomCuts are places to cut that many bytes, in rising order.
func randomCuts(n int, seed uint64) []int {
	rng := rand.New(rand.NewPCG(seed, 0))
	var cuts []int
	for at := 0; at < n; at += 1 + rng.IntN(1+rng.IntN(64)) {
		cuts = append(cuts, at)
	}
	return cuts
}
