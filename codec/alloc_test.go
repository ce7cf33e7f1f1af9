package codec_test

import (
	"fmt"
	"testing"

	"github.com/ticketing-go/ticketing/codec"
)

// allocates fails if a run of f allocates more than allowed.
func allocates(t *testing.T, what string, allowed float64, f func()) {
	t.Helper()
	if got := testing.AllocsPerRun(100, f); got > allowed {
		t.Errorf("%s: %v allocations, want %v at most", what, got, allowed)
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	for _, w := range wires {
		for _, frame := range frames(t, w.file, "request", "bad", "unfinished") {
			var r codec.Request
			allocates(t, fmt.Sprintf("wire %s: Decode(%x)", w.wire.Name(), frame), 0, func() {
				_, _ = w.wire.Decode(frame, &r)
			})
		}
	}
}

func TestAppendReplyAllocatesNothing(t *testing.T) {
	for _, w := range wires {
		for kind := codec.Granted; kind <= codec.Left; kind++ {
			for _, leader := range []*codec.Leader{nil, theLeader} {
				r := &codec.Reply{Kind: kind, ID: 7, Token: 41, Key: []byte("seat-17"), Leader: leader}
				if kind == codec.Rejected {
					r.Reason = codec.BadKey
				}
				dst := make([]byte, 0, 256)
				allocates(t, fmt.Sprintf("wire %s: AppendReply(%s)", w.wire.Name(), describeReply(r)), 0, func() {
					_, _ = w.wire.AppendReply(dst, r)
				})
			}
		}
	}
}

func TestHandshakeAllocations(t *testing.T) {
	for _, w := range wires {
		// crypto/hmac makes its two hashes and keeps what it was keyed with: once a connection and token.
		answer := 0.0
		if w.wire == codec.V3 {
			answer = 8
		}
		dst, token, g := make([]byte, 0, 256), []byte("alpha-0123456789abcdef"), greetings["cluster"]
		allocates(t, w.wire.Name()+": AppendGreeting", 0, func() { _ = w.wire.AppendGreeting(dst, g) })
		allocates(t, w.wire.Name()+": AppendAnswer", answer, func() { _ = w.wire.AppendAnswer(dst, token, g) })
		login := frames(t, w.file, "login")[0]
		allocates(t, w.wire.Name()+": DecodeAnswer", 0, func() { _, _, _ = w.wire.DecodeAnswer(login) })
		allocates(t, w.wire.Name()+": AppendRefused", 0, func() { _ = w.wire.AppendRefused(dst) })
		allocates(t, w.wire.Name()+": AppendFault", 0, func() { _ = w.wire.AppendFault(dst, codec.BadKey) })
	}
}

func TestClientAllocatesNothing(t *testing.T) {
	for _, w := range wires {
		dst, key := make([]byte, 0, 256), []byte("seat-17")
		allocates(t, w.client.Name()+": AppendAcquire", 0, func() { _ = w.client.AppendAcquire(dst, 7, 5, 30, key) })
		allocates(t, w.client.Name()+": AppendRelease", 0, func() { _ = w.client.AppendRelease(dst, 7, 41, key) })
		grant, _ := w.wire.AppendReply(nil, &codec.Reply{Kind: codec.Granted, ID: 7, Token: 41, Key: key})
		var r codec.Reply
		allocates(t, w.client.Name()+": DecodeReply", 0, func() { _, _ = w.client.DecodeReply(grant, &r) })
	}
}
