package conformance

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

var textWires = []string{"v1", "0.3", "0.1"}

// head is a whole fixed header of an acquire on a text wire, all in range.
func head(wire string) string {
	switch wire {
	case "v1":
		return "A\x00\x05" + string(u64(9))
	case "0.3":
		return "A\x00\x01\x00\x05" + string(u64(9))
	}
	return "A\x00\x01\x00\x05"
}

// releaseHead is that of a release.
func releaseHead(wire string) string {
	if wire == "0.1" {
		return "R"
	}
	return "R" + string(u64(9))
}

// PROTOCOL.md section 2, the table of checks: each is followed by close, frames before it are answered first, and what
// the connection had queued leaves.
func TestChecksOfTextWires(t *testing.T) {
	t.Parallel()
	for _, w := range textWires {
		long := strings.Repeat("k", 192)
		rows := []struct{ name, bytes, reason string }{
			{"an op that is none", "X", "bad_op"},
			{"op 0", "\x00", "bad_op"},
			{"a space", " ", "bad_op"},
			{"CR before LF", "\r\n", "bad_op"},
			{"a server's op", "T", "bad_op"},
			{"lower case", "a", "bad_op"},
			{"a frame of 193 bytes without LF", head(w) + long[:193-len(head(w))], "line_too_long"},
			{"a release of 193 bytes", releaseHead(w) + long[:193-len(releaseHead(w))], "line_too_long"},
			{"a long frame with a bad lease", strings.Replace(head(w), "\x05", "\x00", 1) + long[:193-len(head(w))], "line_too_long"},
			{"an empty key", head(w) + "\n", "bad_key"},
			{"a key of 129 bytes", head(w) + long[:129] + "\n", "bad_key"},
			{"a frame of 192 bytes", head(w) + long[:192-len(head(w))] + "\n", "bad_key"},
			{"a key with a space", head(w) + "a b\n", "bad_key"},
			{"a key of a space", head(w) + " \n", "bad_key"},
			{"a key that is not UTF-8", head(w) + "\xff\n", "bad_key"},
			{"a key with a torn rune", head(w) + "a\xe2\x82\n", "bad_key"},
			{"a key with a surrogate", head(w) + "\xed\xa0\x80\n", "bad_key"},
			{"an overlong key of one slash", head(w) + "\xc0\xaf\n", "bad_key"},
			{"a release of an empty key", releaseHead(w) + "\n", "bad_key"},
			{"a release of a key of 129 bytes", releaseHead(w) + long[:129] + "\n", "bad_key"},
			{"a release with a space", releaseHead(w) + "a b\n", "bad_key"},
			{"a release that is not UTF-8", releaseHead(w) + "\x80\n", "bad_key"},
			{"lease 0", zeroLease(w) + "k\n", "bad_lease"},
			{"lease 0 before a bad key", zeroLease(w) + "a b\n", "bad_lease"},
		}
		if w == "v1" {
			for _, lease := range []byte{251, 252, 253, 254, 255} {
				rows = append(rows, struct{ name, bytes, reason string }{
					fmt.Sprintf("lease %d", lease), "A\x00" + string([]byte{lease}) + string(u64(9)) + "k\n", "bad_lease"})
			}
		}
		var scenes []scene
		for _, r := range rows {
			scenes = append(scenes, scene{r.name, fmt.Sprintf(`
				a > A 1 9 9 k
				a < A 1 $a k
				b > A 2 9 9 l
				b > A 3 9 9 k
				b > %q
				b < A 2 $b l
				b < E %s
				b < end
				c > A 4 9 9 k
				c sync
				a > R 6 $a k
				a < R 6 $a k
				c < A 4 $c k           # the acquire that waited has left the queue`, r.bytes, r.reason)})
		}
		each(t, []string{w}, scenes)
	}
}

func zeroLease(wire string) string {
	switch wire {
	case "v1":
		return "A\x00\x00" + string(u64(9))
	case "0.3":
		return "A\x00\x01\x00\x00" + string(u64(9))
	}
	return "A\x00\x01\x00\x00"
}

// What is well-formed, at the edges of the tables.
func TestFramesAtTheEdge(t *testing.T) {
	t.Parallel()
	for _, w := range wires {
		for _, tls := range []bool{false, true} {
			in := common(t, tls)
			t.Run(fmt.Sprintf("%s/tls=%v", w, tls), func(t *testing.T) {
				t.Parallel()
				c := in.dial(t, w)
				mark := fmt.Sprintf("%s.%v", w, tls)
				keys := []string{
					"k" + mark, strings.Repeat("x", 128-len(mark)) + mark, "\x00" + mark, "\t\x7f" + mark, "é€😀" + mark, "/../" + mark,
					"\u00a0" + mark, "\ufeff" + mark, "\ufffd" + mark,
				}
				if w != "3" {
					keys = append(keys, "\r"+mark, "a\r\rb\r"+mark)
				}
				for i, k := range keys {
					id := uint64(i)<<8 | '\n' // header bytes may be LF
					token := c.grant(id, 10, 10, k)
					c.release(id, token, k)
				}
				// Keys are compared byte by byte.
				composed, decomposed := "\u00e9"+mark, "e\u0301"+mark
				c.grant(1, 1, 9, composed)
				c.grant(2, 1, 9, decomposed)
				for _, lease := range map[string][]uint16{"v1": {1, 250}, "3": {1, 250}, "0.3": {1, 251, 65535}, "0.1": {1, 251, 65535}}[w] {
					k := fmt.Sprintf("lease%d%s", lease, mark)
					c.release(3, c.grant(3, 1, lease, k), k)
				}
				if w != "3" {
					c.send([]byte("\n\n\n"))
				}
				c.grant(4, 1, 9, "last"+mark)
			})
		}
	}
}

// The same dialogue, one byte at a time and in one write: the frames of the reply are the same.
func TestFramesInPieces(t *testing.T) {
	t.Parallel()
	for _, w := range wires {
		t.Run(w, func(t *testing.T) {
			t.Parallel()
			in := start(t, "MAX_CONNECTIONS=8")
			var all []byte
			wire := clientWires[w]
			token := uint64(0)
			whole, pieces := in.dial(t, w), in.dial(t, w)
			for _, c := range []*client{whole, pieces} {
				all = all[:0]
				for i := range uint64(8) {
					token++
					key := []byte(fmt.Sprintf("k\u20ac%d", i))
					all = wire.AppendAcquire(all, 10+i, 5, 9, key)
					all = wire.AppendRelease(all, 30+i, token, key)
				}
				if c == whole {
					c.send(all)
				} else {
					for i := range all {
						c.send(all[i : i+1])
					}
				}
				due := map[string]bool{}
				for i := range uint64(8) {
					key := fmt.Sprintf("k\u20ac%d", i)
					due[string(granted(w, 'A', 10+i, token-7+i, key))] = true
					due[string(released(w, 'R', 30+i, token-7+i, key))] = true
				}
				for len(due) > 0 {
					e := c.next()
					if !due[string(e.raw)] {
						t.Fatalf("got %q (%v), want one of %d others", e.raw, e.err, len(due))
					}
					delete(due, string(e.raw))
				}
			}
		})
	}
}

// A frame that does not end in 5 s: bad_request, or on wire 3 the end without a byte. Half a header counts as one.
func TestFramesThatNeverEnd(t *testing.T) {
	t.Parallel()
	for _, tls := range []bool{false, true} {
		in := common(t, tls)
		for _, w := range wires {
			starts := []string{"A", "R", head("v1")}
			if w == "3" {
				starts = []string{"A", "A\x00", "S\x00\x20abc"}
			}
			for _, s := range starts {
				t.Run(fmt.Sprintf("%s/%q/tls=%v", w, s, tls), func(t *testing.T) {
					t.Parallel()
					what := "bad_request"
					if w == "3" {
						what = ""
					}
					unfinished(t, in, w, s, what)
				})
			}
		}
	}
}

func unfinished(t *testing.T, in *instance, w, begin, reason string) {
	c := in.dial(t, w)
	key := fmt.Sprintf("u%d", endings.Add(1))
	c.grant(1, 1, 9, key)
	sent := time.Now()
	c.send([]byte(begin))
	if reason != "" {
		c.want(failed(w, 0, reason))
	}
	e := c.wantEnd()
	if took := e.at.Sub(sent); took < 4500*time.Millisecond || took > 5500*time.Millisecond+slack(sent) {
		t.Errorf("closed after %v, want 5 s within 0.5 s", took)
	}
}

// An end of stream is a disconnect: nothing more is written, releases before it are carried out, waiters leave, and what
// was granted then is revoked or held, but never in the way for longer than its lease.
func TestEndOfStream(t *testing.T) {
	t.Parallel()
	in := common(t, false)
	for _, w := range wires {
		for _, end := range []string{"fin", "cut", "rst"} {
			t.Run(w+"/"+end, func(t *testing.T) {
				t.Parallel()
				script := `
					a > A 1 9 30 k
					a < A 1 $a k
					b > A 2 9 30 k
					b sync
					a > R 3 $a k
					END
					b < A 2 $b k`
				if end == "rst" { // a reset may overtake what was sent
					script = strings.Replace(script, "END", "a < R 3 $a k\na > rst", 1)
				}
				play(t, in, w, strings.Replace(script, "END", "a > "+end, 1))
			})
		}
		t.Run(w+"/half a frame", func(t *testing.T) {
			t.Parallel()
			play(t, in, w, `
				a > "A"
				a > fin
				a < end`)
		})
	}
}
