package eventloop

import (
	"fmt"
	"slices"
	"testing"

	"github.com/panjf2000/gnet/v2"

	"github.com/ticketing-go/ticketing/codec"
)

// written notes who was written to, and what.
type written struct {
	gnet.Conn
	name string
	log  *[]string
}

func (c written) Write(b []byte) (int, error) {
	ops := ""
	for _, line := range splitFrames(b) {
		ops += line[:1]
	}
	*c.log = append(*c.log, c.name+ops)
	return len(b), nil
}

func (written) OutboundBuffered() int { return 0 }

// splitFrames cuts at the newlines: the test's numbers have no byte that is one.
func splitFrames(b []byte) (frames []string) {
	for len(b) > 0 {
		i := slices.Index(b, '\n')
		frames, b = append(frames, string(b[:i])), b[i+1:]
	}
	return frames
}

// The next holder does not wait for the write of the answer to the release, nor of any other, and what one session gets
// stays in its order.
func TestGrantsAreWrittenFirst(t *testing.T) {
	h := &fakeHost{}
	l := newLoop(&Engine{cfg: Config{Host: h}}, 0)
	var log []string
	var ids []SessionID
	for i := range 4 {
		s := &session{l: l, state: serving, wire: codec.V1, c: written{name: fmt.Sprint(i), log: &log}}
		l.place(s)
		ids = append(ids, s.id)
	}
	k := []byte("k")
	done := codec.Reply{Kind: codec.Released, Token: 1, Key: k}
	grant := codec.Reply{Kind: codec.Granted, Token: 2, ID: 3, Key: k}
	late := codec.Reply{Kind: codec.TimedOut, ID: 4, Key: k}
	for round, c := range []struct {
		due  []queued
		want []string
	}{
		{[]queued{{ids[0], done}, {ids[1], grant}}, []string{"1A", "0R"}},
		{[]queued{{ids[0], done}, {ids[1], late}, {ids[2], late}, {ids[2], grant}, {ids[2], late}, {ids[3], done}, {ids[0], grant}},
			[]string{"0RA", "2TAT", "1T", "3R"}},
		{[]queued{{ids[0], done}, {ids[1], late}}, []string{"0R", "1T"}},
		{[]queued{{ids[3], grant}}, []string{"3A"}},
	} {
		log = nil
		h.replies[0] = c.due
		l.drain()
		if !slices.Equal(log, c.want) {
			t.Errorf("round %d: written %v, want %v", round, log, c.want)
		}
	}
}
