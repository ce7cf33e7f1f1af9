package codec_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/codec"
)

// wires are the four, with both sides of each.
var wires = []struct {
	wire   codec.Wire
	client codec.ClientWire
	file   string // in testdata
}{
	{codec.V1, codec.ClientV1, "v1"},
	{codec.V3, codec.ClientV3, "wire3"},
	{codec.V03, codec.ClientV03, "wire03"},
	{codec.V01, codec.ClientV01, "wire01"},
}

// theLeader is what "leader" means in testdata: no two wires tell the same of it.
var theLeader = &codec.Leader{Addr: "10.0.0.2:5225", Addr03: "10.0.0.2:5303", Addr01: "10.0.0.2:5301", Slot: 2}

var kindNames = []string{
	codec.Granted: "granted", codec.TimedOut: "timed-out", codec.Busy: "busy", codec.Released: "released",
	codec.NotHeld: "not-held", codec.Mismatched: "mismatched", codec.Rejected: "rejected", codec.Moved: "moved",
	codec.NotActive: "not-active", codec.LostQueued: "lost-queued", codec.LostProposed: "lost-proposed",
	codec.StopQueued: "stop-queued", codec.Notice: "notice", codec.Stopping: "stopping", codec.Left: "left",
}

var opNames = []string{
	codec.KeepAlive: "keep-alive", codec.Acquire: "acquire", codec.Release: "release", codec.Reject: "reject",
}

var flagNames = []struct {
	flag codec.Flags
	name string
}{
	{codec.AsSet, "as-set"}, {codec.Idempotent, "idempotent"}, {codec.ByKey, "by-key"}, {codec.InOrder, "in-order"},
}

// describeRequest says a request in the words of testdata: the fields that are not zero, in one order.
func describeRequest(r *codec.Request) string {
	var b strings.Builder
	b.WriteString(opNames[r.Op])
	describeNumbers(&b, r.ID, r.Token, r.Flags, r.Reason)
	if r.Wait != 0 {
		fmt.Fprintf(&b, " wait=%s", describeTime(r.Wait))
	}
	if r.Lease != 0 {
		fmt.Fprintf(&b, " lease=%s", describeTime(r.Lease))
	}
	if r.Key != nil {
		fmt.Fprintf(&b, " key=%s", describeKey(r.Key))
	}
	for rest := r.Set; len(rest) > 0; rest = rest[1+int(rest[0]):] {
		fmt.Fprintf(&b, " member=%s", describeKey(rest[1:1+int(rest[0])]))
	}
	return b.String()
}

func describeReply(r *codec.Reply) string {
	var b strings.Builder
	if r.Kind == 0 {
		b.WriteString("nothing")
	} else {
		b.WriteString(kindNames[r.Kind])
	}
	describeNumbers(&b, r.ID, r.Token, r.Flags, r.Reason)
	if r.Key != nil {
		fmt.Fprintf(&b, " key=%s", describeKey(r.Key))
	}
	if l := r.Leader; l == theLeader {
		b.WriteString(" leader")
	} else if l != nil {
		fmt.Fprintf(&b, " leader=%s/%s/%s/%d", l.Addr, l.Addr03, l.Addr01, l.Slot)
	}
	return b.String()
}

func describeNumbers(b *strings.Builder, id, token uint64, flags codec.Flags, reason codec.Reason) {
	if id != 0 {
		fmt.Fprintf(b, " id=%d", id)
	}
	if token != 0 {
		fmt.Fprintf(b, " token=%d", token)
	}
	if reason != codec.NoReason {
		fmt.Fprintf(b, " reason=%s", reason)
	}
	for _, f := range flagNames {
		if flags&f.flag != 0 {
			fmt.Fprintf(b, " %s", f.name)
		}
	}
}

func describeTime(d time.Duration) string {
	if d == codec.Forever {
		return "forever"
	}
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}

func describeKey(key []byte) string {
	if len(key) > 32 && strings.Count(string(key), string(key[:1])) == len(key) {
		return fmt.Sprintf("%q*%d", key[:1], len(key))
	}
	return strconv.Quote(string(key))
}

// parseRequest is the inverse of describeRequest.
func parseRequest(t *testing.T, words []string) *codec.Request {
	t.Helper()
	r := &codec.Request{Op: codec.Op(indexOf(t, opNames, words[0]))}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "wait":
			r.Wait = parseTime(t, value)
		case "lease":
			r.Lease = parseTime(t, value)
		case "key":
			r.Key = parseKey(t, value)
		case "member":
			key := parseKey(t, value)
			r.Set = append(append(r.Set, byte(len(key))), key...)
		default:
			parseNumber(t, word, &r.ID, &r.Token, &r.Flags, &r.Reason)
		}
	}
	return r
}

// parseReply is the inverse of describeReply.
func parseReply(t *testing.T, words []string) *codec.Reply {
	t.Helper()
	r := &codec.Reply{}
	if words[0] != "nothing" {
		r.Kind = codec.Kind(indexOf(t, kindNames, words[0]))
	}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "key":
			r.Key = parseKey(t, value)
		case "leader":
			r.Leader = theLeader
			if value != "" {
				parts := strings.Split(value, "/")
				slot, err := strconv.ParseUint(parts[3], 10, 8)
				if err != nil {
					t.Fatalf("leader %q: %v", value, err)
				}
				r.Leader = &codec.Leader{Addr: parts[0], Addr03: parts[1], Addr01: parts[2], Slot: uint8(slot)}
			}
		default:
			parseNumber(t, word, &r.ID, &r.Token, &r.Flags, &r.Reason)
		}
	}
	return r
}

func parseNumber(t *testing.T, word string, id, token *uint64, flags *codec.Flags, reason *codec.Reason) {
	t.Helper()
	name, value, _ := strings.Cut(word, "=")
	var err error
	switch name {
	case "id":
		*id, err = strconv.ParseUint(value, 10, 64)
	case "token":
		*token, err = strconv.ParseUint(value, 10, 64)
	case "reason":
		*reason = parseReason(t, value)
	default:
		for _, f := range flagNames {
			if f.name == name {
				*flags |= f.flag
				return
			}
		}
		t.Fatalf("no field is called %q", name)
	}
	if err != nil {
		t.Fatalf("%s: %v", word, err)
	}
}

func parseReason(t *testing.T, name string) codec.Reason {
	t.Helper()
	for reason := codec.NoReason; reason <= codec.BadToken; reason++ {
		if reason.String() == name {
			return reason
		}
	}
	t.Fatalf("no reason is called %q", name)
	return codec.NoReason
}

func parseTime(t *testing.T, s string) time.Duration {
	t.Helper()
	if s == "forever" {
		return codec.Forever
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func parseKey(t *testing.T, s string) []byte {
	t.Helper()
	b, rest := parseBytes(t, s)
	if rest != "" {
		t.Fatalf("key %q: %q is left", s, rest)
	}
	return b
}

func indexOf(t *testing.T, names []string, name string) int {
	t.Helper()
	for i, n := range names {
		if n == name {
			return i
		}
	}
	t.Fatalf("nothing is called %q", name)
	return 0
}

// parseBytes reads one piece of bytes from the start of s: hex digits or a quoted string, either perhaps with *N behind.
func parseBytes(t testing.TB, s string) (b []byte, rest string) {
	t.Helper()
	if quoted, err := strconv.QuotedPrefix(s); err == nil {
		text, _ := strconv.Unquote(quoted)
		b, rest = []byte(text), s[len(quoted):]
	} else {
		digits := 0
		for digits < len(s) && strings.IndexByte("0123456789abcdef", s[digits]) >= 0 {
			digits++
		}
		if digits == 0 || digits%2 != 0 {
			t.Fatalf("neither hex nor a quoted string: %q", s)
		}
		for i := 0; i < digits; i += 2 {
			v, _ := strconv.ParseUint(s[i:i+2], 16, 8)
			b = append(b, byte(v))
		}
		rest = s[digits:]
	}
	if count, ok := strings.CutPrefix(rest, "*"); ok {
		count, rest, _ = strings.Cut(count, " ")
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		b = []byte(strings.Repeat(string(b), n))
	}
	return b, strings.TrimLeft(rest, " ")
}
