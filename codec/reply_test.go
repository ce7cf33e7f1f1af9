package codec_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ticketing-go/ticketing/codec"
)

// randomReply is any that the core may give, for any wire.
func randomReply(rng *rand.Rand) *codec.Reply {
	r := &codec.Reply{
		Kind:  codec.Granted + codec.Kind(rng.IntN(int(codec.Left))),
		ID:    max(1, randomNumber(rng)),
		Token: max(1, randomNumber(rng)),
		Key:   randomKey(rng),
	}
	if rng.IntN(2) == 0 {
		r.Flags = codec.AsSet
	}
	if rng.IntN(2) == 0 {
		r.Leader = theLeader
	}
	if r.Kind == codec.Rejected {
		r.Reason = []codec.Reason{codec.BadKey, codec.BadLease, codec.BadKeySet, codec.BadToken}[rng.IntN(4)]
	}
	return r
}

// heard is what a client of the wire makes of a reply, in the words of testdata; empty: nothing was said.
func heard(w codec.Wire, r *codec.Reply) string {
	if r.Kind == codec.Notice && w != codec.V3 && r.Leader == nil {
		return ""
	}
	leader, set := "", ""
	if r.Leader != nil {
		leader = map[codec.Wire]string{
			codec.V1: " leader=10.0.0.2:5225///0", codec.V03: " leader=/10.0.0.2:5303//0",
			codec.V01: " leader=//10.0.0.2:5301/0", codec.V3: " leader=///2",
		}[w]
	}
	if r.Flags&codec.AsSet != 0 {
		set = " as-set"
	}
	return strings.NewReplacer("ID", fmt.Sprintf(" id=%d", r.ID), "TOKEN", fmt.Sprintf(" token=%d", r.Token),
		"KEY", " key="+describeKey(r.Key), "LEADER", leader, "REASON", " reason="+r.Reason.String(), "SET", set,
	).Replace(heardWords(w)[r.Kind])
}

// heardWords are the tables of PROTOCOL.md and WIRES.md turned round: for each kind the word, and the fields that come
// with it.
func heardWords(w codec.Wire) map[codec.Kind]string {
	switch w {
	case codec.V3:
		return map[codec.Kind]string{
			codec.Granted: "grantedIDTOKENSET", codec.TimedOut: "timed-outID", codec.Busy: "busyID",
			codec.Released: "releasedIDSET", codec.NotHeld: "not-heldID", codec.Mismatched: "mismatchedID",
			codec.Rejected: "rejectedIDREASON", codec.Moved: "movedIDLEADER", codec.NotActive: "not-activeID",
			codec.LostQueued: "movedIDLEADER", codec.LostProposed: "lost-proposedID",
			codec.StopQueued: "not-activeID", codec.Notice: "noticeLEADER",
		}
	case codec.V01:
		return map[codec.Kind]string{
			codec.Granted: "grantedTOKENKEY", codec.TimedOut: "timed-outKEY", codec.Busy: "timed-outKEY",
			codec.Released: "releasedKEY", codec.NotHeld: "not-heldKEY", codec.Mismatched: "not-heldKEY",
			codec.Moved: "movedLEADER", codec.NotActive: "not-active", codec.LostQueued: "movedLEADER",
			codec.LostProposed: "movedLEADER", codec.Stopping: "not-active",
		}
	}
	words := map[codec.Kind]string{
		codec.Granted: "grantedIDTOKENKEY", codec.TimedOut: "timed-outIDKEY", codec.Busy: "busyIDKEY",
		codec.Released: "releasedTOKENKEY", codec.NotHeld: "not-heldTOKENKEY", codec.Mismatched: "not-heldTOKENKEY",
		codec.Moved: "movedLEADER", codec.NotActive: "not-active", codec.LostQueued: "busyIDKEY",
		codec.LostProposed: "movedLEADER", codec.StopQueued: "busyIDKEY", codec.Notice: "noticeLEADER",
		codec.Stopping: "not-active",
	}
	if w == codec.V03 {
		words[codec.LostQueued] = "movedLEADER"
	}
	return words
}

func TestReplyRoundTrip(t *testing.T) {
	for _, w := range wires {
		t.Run(w.wire.Name(), func(t *testing.T) {
			rng := random(t)
			for range 5000 {
				r := randomReply(rng)
				frame, after := w.wire.AppendReply(nil, r)
				ends := w.wire != codec.V3 && r.Kind == codec.LostProposed ||
					(w.wire == codec.V03 || w.wire == codec.V01) && r.Kind == codec.LostQueued
				if (after == codec.End) != ends {
					t.Fatalf("%s: after %d, want it to end: %v", describeReply(r), after, ends)
				}
				var got codec.Reply
				n, err := w.client.DecodeReply(frame, &got)
				want := heard(w.wire, r)
				if n != len(frame) || err != nil || n > w.client.MaxReplyBytes() || n > 0 && describeReply(&got) != want || n == 0 && want != "" {
					t.Fatalf("%s: DecodeReply(%x) = %d, %v\n got %s\nwant %s", describeReply(r), frame, n, err, describeReply(&got), want)
				}
				for cut := range frame {
					if n, err := w.client.DecodeReply(frame[:cut:cut], &got); n != 0 || err != nil {
						t.Fatalf("DecodeReply(%x), %d of %d bytes, = %d, %v", frame[:cut], cut, len(frame), n, err)
					}
				}
			}
		})
	}
}

// TestLongAddress: an address that fits no frame is not told.
func TestLongAddress(t *testing.T) {
	for _, w := range wires {
		if w.wire == codec.V3 {
			continue
		}
		for _, long := range []int{codec.MaxAddrBytes, codec.MaxAddrBytes + 1} {
			addr := strings.Repeat("h", long)
			leader := &codec.Leader{Addr: addr, Addr03: addr, Addr01: addr}
			want := "M" + addr + "\n"
			if long > codec.MaxAddrBytes {
				want = "Eno_leader\n"
			}
			got, _ := w.wire.AppendReply(nil, &codec.Reply{Kind: codec.Moved, Leader: leader})
			if string(got) != want {
				t.Errorf("wire %s, %d bytes: got %q, want %q", w.wire.Name(), long, got, want)
			}
			notice, _ := w.wire.AppendReply(nil, &codec.Reply{Kind: codec.Notice, Leader: leader})
			if len(notice) > codec.MaxTextFrame+1 {
				t.Errorf("wire %s: a notice of %d bytes", w.wire.Name(), len(notice))
			}
		}
	}
}

func TestWireFacts(t *testing.T) {
	for i, want := range []string{
		"1: frames of 193 bytes, leases of 4m10s, replies of 193 bytes",
		"3: frames of 2084 bytes, leases of 4m10s, replies of 19 bytes",
		"0.3: frames of 193 bytes, leases of 18h12m15s, replies of 193 bytes",
		"0.1: frames of 193 bytes, leases of 18h12m15s, replies of 193 bytes",
	} {
		w := wires[i]
		got := fmt.Sprintf("%s: frames of %d bytes, leases of %v, replies of %d bytes",
			w.client.Name(), w.wire.MaxFrameBytes(), w.wire.MaxLease(), w.client.MaxReplyBytes())
		if got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}

// TestRequestTimesRoundUp: a client's times are rounded up to whole seconds and end at what the frame can say.
func TestRequestTimesRoundUp(t *testing.T) {
	for _, row := range []struct {
		client codec.ClientWire
		ask    string
		frame  string
	}{
		{codec.ClientV1, `acquire wait=1ns lease=1ns key="k"`, "410101" + "0000000000000000" + "6b0a"},
		{codec.ClientV1, `acquire wait=5s lease=29.0001s key="k"`, "41051e" + "0000000000000000" + "6b0a"},
		{codec.ClientV1, `acquire wait=forever lease=300s key="k"`, "41fffa" + "0000000000000000" + "6b0a"},
		{codec.ClientV1, `reject id=1 reason=bad_key`, ""},
		{codec.ClientV03, `acquire lease=0.5s key="k"`, "4100010001" + "0000000000000000" + "6b0a"},
		{codec.ClientV03, `acquire wait=70000s lease=70000s key="k"`, "41ffffffff" + "0000000000000000" + "6b0a"},
		{codec.ClientV03, `reject id=1 reason=bad_key`, ""},
		{codec.ClientV01, `acquire wait=forever lease=1s key="k"`, "4100000001" + "6b0a"},
		{codec.ClientV01, `acquire lease=1s key="k"`, "4100010001" + "6b0a"},
		{codec.ClientV01, `reject id=1 reason=bad_key`, ""},
		{codec.ClientV3, `acquire id=1 wait=4.95s lease=251s key="k"`, "41000b" + "0000000000000001" + "05fa" + "6b"},
		{codec.ClientV3, `reject id=1 reason=bad_key`, ""},
		{codec.ClientV3, `keep-alive`, ""},
	} {
		got := fmt.Sprintf("%x", row.client.AppendRequest(nil, parseRequest(t, strings.Fields(row.ask))))
		if got != row.frame {
			t.Errorf("wire %s: %s: got %s, want %s", row.client.Name(), row.ask, got, row.frame)
		}
	}
}
