package codec_test

import (
	"testing"

	"github.com/ticketing-go/ticketing/codec"
)

var (
	sinkBytes []byte
	sinkN     int
)

const benchKey = "ticket-seat-00017" // a frame of 29 bytes on v1: 28 and the LF

func BenchmarkDecode(b *testing.B) {
	buf := append([]byte{'A', 5, 30, 0, 0, 0, 0, 0, 0, 0, 7}, benchKey+"\n"...)
	var r codec.Request
	w := codec.V1
	b.ReportAllocs()
	for b.Loop() {
		sinkN, _ = w.Decode(buf, &r)
	}
}

func BenchmarkReply(b *testing.B) {
	r := codec.Reply{Kind: codec.Granted, ID: 7, Token: 41, Key: []byte(benchKey)}
	w := codec.V1
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		sinkBytes, _ = w.AppendReply(buf, &r)
	}
}
