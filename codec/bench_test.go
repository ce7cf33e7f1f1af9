package codec_test

import (
	"strings"
	"testing"

	"github.com/ticketing-go/ticketing/codec"
)

// The keys of the benchmarks: 16 bytes make a v1 acquire of 28 with its LF.
var benchKeys = []struct{ name, key string }{
	{"key16", "ticket-seat-0017"},
	{"key128", strings.Repeat("k", 128)},
	{"korean", "공연-좌석-17"},
}

func BenchmarkDecodeAcquire(b *testing.B) {
	for _, w := range wires {
		for _, k := range benchKeys {
			b.Run(w.wire.Name()+"/"+k.name, func(b *testing.B) {
				frame := w.client.AppendAcquire(nil, 7, 5, 30, []byte(k.key))
				benchDecode(b, w.wire, frame)
			})
		}
	}
}

func BenchmarkDecodeRelease(b *testing.B) {
	for _, w := range wires {
		b.Run(w.wire.Name(), func(b *testing.B) {
			benchDecode(b, w.wire, w.client.AppendRelease(nil, 7, 41, []byte(benchKeys[0].key)))
		})
	}
}

func BenchmarkDecodeSet(b *testing.B) {
	r := &codec.Request{Op: codec.Acquire, ID: 7, Wait: 5e9, Lease: 30e9}
	for i := range codec.MaxSetKeys {
		key := "ticket-seat-00" + string([]byte{'0' + byte(i/10), '0' + byte(i%10)})
		r.Set = append(append(r.Set, byte(len(key))), key...)
	}
	benchDecode(b, codec.V3, codec.ClientV3.AppendRequest(nil, r))
}

func benchDecode(b *testing.B, w codec.Wire, frame []byte) {
	b.ReportAllocs()
	var r codec.Request
	for b.Loop() {
		if n, err := w.Decode(frame, &r); n != len(frame) {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkAppendReply(b *testing.B) {
	for _, w := range wires {
		for _, kind := range []codec.Kind{codec.Granted, codec.Released} {
			b.Run(w.wire.Name()+"/"+kindNames[kind], func(b *testing.B) {
				b.ReportAllocs()
				r := &codec.Reply{Kind: kind, ID: 7, Token: 41, Key: []byte(benchKeys[0].key)}
				dst := make([]byte, 0, 256)
				for b.Loop() {
					if out, _ := w.wire.AppendReply(dst, r); len(out) == 0 {
						b.Fatal("nothing was said")
					}
				}
			})
		}
	}
}

func BenchmarkAppendAnswer(b *testing.B) {
	for _, w := range wires {
		b.Run(w.wire.Name(), func(b *testing.B) {
			b.ReportAllocs()
			dst, token, g := make([]byte, 0, 64), []byte("alpha-0123456789abcdef"), greetings["single"]
			for b.Loop() {
				_ = w.wire.AppendAnswer(dst, token, g)
			}
		})
	}
}
