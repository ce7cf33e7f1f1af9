package codec_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/ticketing-go/ticketing/codec"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 takes a new one")

// random is a source whose seed a failing test prints.
func random(t testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// session decodes what arrives on a connection as an event loop does, and notes it.
type session struct {
	wire     codec.Wire
	left     []byte
	requests []string
	err      error
}

// arrives takes the next piece. Each call of Decode sees a buffer that ends where the bytes do, so that reading on panics.
func (s *session) arrives(piece []byte) {
	s.left = append(s.left, piece...)
	for s.err == nil {
		var r codec.Request
		n, err := s.wire.Decode(bytes.Clone(s.left)[:len(s.left):len(s.left)], &r)
		if s.err = err; n == 0 {
			return
		}
		s.requests = append(s.requests, describeRequest(&r))
		s.left = s.left[n:]
	}
}

func (s *session) String() string {
	if s.err != nil {
		return fmt.Sprintf("%q, then %v", s.requests, s.err)
	}
	return fmt.Sprintf("%q, and %x is left", s.requests, s.left)
}

// inPieces is a session that got the stream cut at the places given, in rising order.
func inPieces(w codec.Wire, stream []byte, cuts ...int) *session {
	s := &session{wire: w}
	from := 0
	for _, cut := range append(cuts, len(stream)) {
		s.arrives(stream[from:cut])
		from = cut
	}
	return s
}

// randomKey is a key of 1 to 128 bytes that all wires take.
func randomKey(rng *rand.Rand) []byte {
	most := 1 + rng.IntN(codec.MaxKeyBytes)
	if rng.IntN(4) > 0 {
		most = 1 + rng.IntN(24)
	}
	var key []byte
	for {
		c := rune(rng.IntN(0x80))
		if rng.IntN(8) == 0 {
			c = rune(rng.IntN(utf8.MaxRune + 1))
		}
		if c == ' ' || c == '\n' || c == '\r' || !utf8.ValidRune(c) {
			continue
		}
		if len(key)+utf8.RuneLen(c) > most {
			break
		}
		key = utf8.AppendRune(key, c)
	}
	if len(key) == 0 {
		return []byte("k")
	}
	return key
}

// randomNumber is of any size, and often has bytes of 0x0A.
func randomNumber(rng *rand.Rand) uint64 {
	switch rng.IntN(4) {
	case 0:
		return uint64(rng.IntN(16))
	case 1:
		return 0x0a0a0a0a0a0a0a0a >> (8 * rng.IntN(8))
	}
	return rng.Uint64() >> rng.IntN(64)
}

// randomRequest is one that Decode of the wire can return.
func randomRequest(w codec.Wire, rng *rand.Rand) *codec.Request {
	r := &codec.Request{Op: codec.Release, Key: randomKey(rng)}
	if rng.IntN(3) > 0 {
		r.Op = codec.Acquire
		r.Lease = time.Duration(1+rng.IntN(int(w.MaxLease()/time.Second))) * time.Second
		r.Wait = randomWait(w, rng)
	}
	acquire := r.Op == codec.Acquire
	switch w {
	case codec.V1, codec.V03:
		if acquire {
			r.ID = randomNumber(rng)
		} else {
			r.Token = randomNumber(rng)
		}
		if w == codec.V03 && r.ID != 0 {
			r.Flags = codec.Idempotent
		}
	case codec.V01:
		r.Flags = codec.ByKey
		if acquire {
			r.Flags |= codec.InOrder
		}
	case codec.V3:
		r.ID = max(1, randomNumber(rng))
		if !acquire {
			r.Token = max(1, randomNumber(rng))
		}
		if rng.IntN(2) == 0 {
			r.Flags = codec.AsSet
			r.Key, r.Set = randomSet(rng)
		}
	}
	return r
}

func randomWait(w codec.Wire, rng *rand.Rand) time.Duration {
	if w == codec.V1 || w == codec.V3 {
		if rng.IntN(4) == 0 {
			return 0
		}
		return time.Duration(1+rng.IntN(255))*time.Second - 100*time.Millisecond
	}
	if rng.IntN(4) == 0 {
		return codec.Forever
	}
	return time.Duration(1+rng.IntN(65535)) * time.Second
}

// randomSet is a set as Request has it: a key if there is one, else two or more in order.
func randomSet(rng *rand.Rand) (key, set []byte) {
	count := 1 + rng.IntN(codec.MaxSetKeys)
	if count == 1 {
		return randomKey(rng), nil
	}
	// The first byte is another in each, and rises.
	for i := range count {
		member := append([]byte{byte('a' + i)}, randomKey(rng)...)
		if len(member) > codec.MaxKeyBytes {
			member = member[:1]
		}
		set = append(append(set, byte(len(member))), member...)
	}
	return nil, set
}

func TestRequestRoundTrip(t *testing.T) {
	for _, w := range wires {
		t.Run(w.wire.Name(), func(t *testing.T) {
			rng := random(t)
			for range 3000 {
				want := randomRequest(w.wire, rng)
				frame := w.client.AppendRequest(nil, want)
				if len(frame) > w.wire.MaxFrameBytes() {
					t.Fatalf("%s: a frame of %d bytes, longer than %d", describeRequest(want), len(frame), w.wire.MaxFrameBytes())
				}
				got := codec.Request{Reason: codec.BadOp, Token: 99, Set: []byte("rest of the last frame")}
				n, err := w.wire.Decode(append(bytes.Clone(frame), "and what follows"...), &got)
				if n != len(frame) || err != nil || describeRequest(&got) != describeRequest(want) {
					t.Fatalf("Decode(%x) = %d, %v\n got %s\nwant %s", frame, n, err, describeRequest(&got), describeRequest(want))
				}
			}
		})
	}
}

// TestEveryPrefixNeedsMore: a part of a good frame is never a shorter frame and never an error, and leaves r alone.
func TestEveryPrefixNeedsMore(t *testing.T) {
	for _, w := range wires {
		t.Run(w.wire.Name(), func(t *testing.T) {
			rng := random(t)
			good := frames(t, w.file, "request")
			for range 300 {
				good = append(good, w.client.AppendRequest(nil, randomRequest(w.wire, rng)))
			}
			for _, frame := range good {
				for cut := range frame {
					r := codec.Request{ID: 99}
					n, err := w.wire.Decode(frame[:cut:cut], &r)
					if n != 0 || err != nil || describeRequest(&r) != "keep-alive id=99" {
						t.Fatalf("Decode(%x), %d of %d bytes, = %d, %v, %s", frame[:cut], cut, len(frame), n, err, describeRequest(&r))
					}
				}
			}
		})
	}
}

// TestDecodeBorrows: keys lie in the buffer, with no room behind them; everything else is r's own.
func TestDecodeBorrows(t *testing.T) {
	for _, w := range wires {
		t.Run(w.wire.Name(), func(t *testing.T) {
			for _, frame := range frames(t, w.file, "request") {
				frame = append(bytes.Clone(frame), "next"...)
				var r codec.Request
				if _, err := w.wire.Decode(frame, &r); err != nil {
					t.Fatal(err)
				}
				before, key, set := r, bytes.Clone(r.Key), bytes.Clone(r.Set)
				for i := range frame {
					frame[i] ^= 0xff
				}
				for i := range key {
					key[i] ^= 0xff
				}
				for i := range set {
					set[i] ^= 0xff
				}
				if !bytes.Equal(r.Key, key) || !bytes.Equal(r.Set, set) {
					t.Errorf("%x: the keys are a copy", frame)
				}
				for _, borrowed := range [][]byte{r.Key, r.Set} {
					if cap(borrowed) != len(borrowed) {
						t.Errorf("%x: room for %d bytes behind a key of %d", frame, cap(borrowed)-len(borrowed), len(borrowed))
					}
				}
				if sameButKeys(before) != sameButKeys(r) || unsafe.SliceData(before.Key) != unsafe.SliceData(r.Key) {
					t.Errorf("%x: got %s, before %s", frame, describeRequest(&r), describeRequest(&before))
				}
			}
		})
	}
}

func sameButKeys(r codec.Request) string {
	r.Key, r.Set = nil, nil
	return describeRequest(&r)
}

// TestDecodeAgreesWithReference: on good frames, bad ones, and good ones with a byte or two changed.
func TestDecodeAgreesWithReference(t *testing.T) {
	for _, w := range wires {
		t.Run(w.wire.Name(), func(t *testing.T) {
			rng := random(t)
			seeds := frames(t, w.file, "request", "bad", "unfinished")
			for range 60_000 {
				frame := bytes.Clone(seeds[rng.IntN(len(seeds))])
				if rng.IntN(2) == 0 {
					frame = w.client.AppendRequest(nil, randomRequest(w.wire, rng))
				}
				mutate(&frame, rng)
				checkReference(t, w.wire, frame)
			}
		})
	}
}

// mutate changes a byte, takes one out or puts one in, up to three times.
func mutate(frame *[]byte, rng *rand.Rand) {
	const favourites = "\x00\x01\n\r \xfa\xfb\xffAR\x80\xc0\xed"
	for range rng.IntN(4) {
		if len(*frame) == 0 {
			return
		}
		at := rng.IntN(len(*frame))
		c := byte(rng.Uint32())
		if rng.IntN(2) == 0 {
			c = favourites[rng.IntN(len(favourites))]
		}
		switch rng.IntN(4) {
		case 0:
			*frame = append((*frame)[:at], (*frame)[at+1:]...)
		case 1:
			*frame = append((*frame)[:at], append([]byte{c}, (*frame)[at:]...)...)
		default:
			(*frame)[at] = c
		}
	}
}

func checkReference(t *testing.T, w codec.Wire, buf []byte) {
	t.Helper()
	want := reference(w, buf)
	var r codec.Request
	n, err := w.Decode(bytes.Clone(buf)[:len(buf):len(buf)], &r)
	if n != want.n || !errors.Is(err, want.err) || describeRequest(&r) != describeRequest(&want.r) {
		t.Fatalf("wire %s: Decode(%x)\n got %d, %v, %s\nwant %d, %v, %s", w.Name(), buf,
			n, err, describeRequest(&r), want.n, want.err, describeRequest(&want.r))
	}
}

// TestStreamAtEverySplit: a conversation cut in two anywhere, or into single bytes, is the same conversation.
func TestStreamAtEverySplit(t *testing.T) {
	for _, w := range wires {
		t.Run(w.wire.Name(), func(t *testing.T) {
			var stream []byte
			for _, frame := range frames(t, w.file, "request") {
				stream = append(stream, frame...)
			}
			want := inPieces(w.wire, stream).String()
			all := make([]int, 0, len(stream))
			for cut := range stream {
				all = append(all, cut)
				if got := inPieces(w.wire, stream, cut).String(); got != want {
					t.Fatalf("cut at %d\n got %s\nwant %s", cut, got, want)
				}
			}
			if got := inPieces(w.wire, stream, all...).String(); got != want {
				t.Fatalf("in single bytes\n got %s\nwant %s", got, want)
			}
		})
	}
}
