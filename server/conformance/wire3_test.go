package conformance

import (
	"fmt"
	"strings"
	"testing"
)

// WIRES.md section 2 over section 3's frames: sets are granted whole, first come, first served.
func TestKeySets(t *testing.T) {
	t.Parallel()
	each(t, []string{"3"}, keySets)
}

const sixteen = " k00 k01 k02 k03 k04 k05 k06 k07 k08 k09 k10 k11 k12 k13 k14 k15"

var keySets = []scene{
	{"granted as a whole under one token", `
			a > S 1 0 9 a b c
			a < S 1 $s
			b > A 2 0 9 a
			b < T 2
			b > A 3 0 9 c
			b < T 3
			b > S 4 0 9 c d
			b < T 4
			b > A 5 0 9 d
			b < A 5 $d
			a > G 6 $s a b c
			a < G 6 $s
			b > S 7 0 9 a b
			b < S 7 $t`},
	{"sixteen keys", `
			a > S 1 0 9` + sixteen + `
			a < S 1 $s
			b > A 2 0 9 k15
			b < T 2
			a > G 3 $s` + sixteen + `
			a < G 3 $s
			b > A 4 0 9 k15
			b < A 4 $b`},
	{"the lease frees all keys in one step", `
			a > S 1 0 1 a b
			clock
			a < S 1 $s
			b > A 2 9 9 a
			c > A 3 9 9 b
			b < A 2 $b in 0.99 1.06
			c < A 3 $c in 0.99 1.06`},
	{"the oldest waiter waits for holders only", `
			a > A 1 0 20 a
			a < A 1 $a
			b > A 2 0 20 b
			b < A 2 $b
			c > S 3 20 20 a b
			c sync
			d > A 4 20 20 b
			d sync
			b > R 5 $b b
			b < R 5 $b
			d sync
			a > R 6 $a a
			a < R 6 $a
			c < S 3 $c
			c > G 7 $c a b
			c < G 7 $c
			d < A 4 $d`},
	{"several grants follow from one release, in the order of arrival", `
			a > S 1 0 20 a b c
			a < S 1 $s
			b > A 2 20 20 c
			b > A 3 20 20 a
			b > A 4 20 20 b
			b sync
			a > G 5 $s a b c
			a < G 5 $s
			b < A 2 $x
			b < A 3 $y
			b < A 4 $z`},
	{"a set that times out lets those behind it go on", `
			a > A 1 0 20 a
			a < A 1 $a
			clock
			b > S 2 4 20 a b
			b sync
			c > A 3 20 20 b
			c sync
			b < T 2 in 3.9 3.95
			c < A 3 $c in 3.9 3.95`},
	{"a set whose connection ends lets those behind it go on", `
			a > A 1 0 20 a
			a < A 1 $a
			b > S 2 20 20 a b
			b sync
			c > A 3 20 20 b
			c sync
			b > cut
			c < A 3 $c`},
	{"sets in a ring do not deadlock", `
			h > S 1 0 20 a b c
			h < S 1 $h
			a > S 2 20 20 a b
			a sync
			b > S 3 20 20 b c
			b sync
			c > S 4 20 20 a c
			c sync
			h > G 5 $h a b c
			h < G 5 $h
			a < S 2 $a
			b sync
			c sync
			a > G 6 $a a b
			a < G 6 $a
			b < S 3 $b
			c sync
			b > G 7 $b b c
			b < G 7 $b
			c < S 4 $c`},
}

// WIRES.md section 3.4: the answers to releases.
func TestReleasesOfWire3(t *testing.T) {
	t.Parallel()
	each(t, []string{"3"}, []scene{
		{"some of the keys, or more, is a group mismatch and changes nothing", `
			a > S 1 0 9 a b c
			a < S 1 $s
			a > G 2 $s a b
			a < E 2 6
			a > G 3 $s a b c d
			a < E 3 6
			a > R 4 $s b
			a < E 4 6
			a > G 5 $s c d
			a < E 5 6
			b > A 6 0 9 a
			b < T 6
			a > G 7 $s a b c
			a < G 7 $s`},
		{"none of the keys is not held", `
			a > S 1 0 9 a b
			a < S 1 $s
			a > G 2 $s c d
			a < N 2 $s
			a > R 3 $s c
			a < N 3 $s
			a > G 4 $s a b
			a < G 4 $s
			a > G 5 $s a b
			a < N 5 $s`},
		{"a set of one by R and by G", `
			a > S 1 0 9 a
			a < S 1 $s
			a > R 2 $s a
			a < R 2 $s
			a > A 3 0 9 a
			a < A 3 $t
			a > G 4 $t a
			a < G 4 $t`},
		{"ids are echoed, and may come twice", `
			a > A 18446744073709551615 0 9 a
			a < A 18446744073709551615 $a
			a > A 7 0 9 a
			a < T 7
			a > A 7 0 9 b
			a < A 7 $b`},
	})
}

// WIRES.md section 3.3: what answers with E and leaves the connection open, in the order of the table.
func TestErrorsOfWire3(t *testing.T) {
	t.Parallel()
	key := func(id uint64, wait, lease byte, key string) string {
		return fmt.Sprintf("%q", frame3('A', u64(id), []byte{wait, lease}, []byte(key)))
	}
	rel := func(id, token uint64, key string) string {
		return fmt.Sprintf("%q", frame3('R', u64(id), u64(token), []byte(key)))
	}
	set := func(id uint64, lease byte, keys ...string) string {
		b := []byte{byte(len(keys))}
		for _, k := range keys {
			b = append(append(b, byte(len(k))), k...)
		}
		return fmt.Sprintf("%q", frame3('S', u64(id), []byte{0, lease}, b))
	}
	gset := func(id, token uint64, keys ...string) string {
		b := []byte{byte(len(keys))}
		for _, k := range keys {
			b = append(append(b, byte(len(k))), k...)
		}
		return fmt.Sprintf("%q", frame3('G', u64(id), u64(token), b))
	}
	seventeen := strings.Split("a b c d e f g h i j k l m n o p q", " ")
	bad := map[string]string{ // request: code
		key(1, 0, 0, "k"): "2", key(1, 0, 251, "k"): "2", key(1, 0, 255, "k"): "2",
		key(1, 0, 0, ""): "2", // the lease is looked at before the key; an empty key makes a body of 10
		key(1, 0, 1, ""): "1", key(1, 0, 1, "a b"): "1", key(1, 0, 1, "a\nb"): "1", key(1, 0, 1, "a\rb"): "1",
		key(1, 0, 1, "\xff"): "1", key(1, 0, 1, "a\xc0\xaf"): "1", key(1, 0, 1, "\xed\xa0\x80"): "1",
		rel(1, 0, "k"): "7", rel(1, 0, ""): "7", rel(1, 1, ""): "1", rel(1, 1, "a b"): "1", rel(1, 1, "\xff"): "1",
		set(1, 0, "a", "b"): "2", set(1, 251, "b", "a"): "2", set(1, 1): "5", set(1, 1, seventeen...): "5",
		set(1, 1, "b", "a"): "5", set(1, 1, "a", "a"): "5", set(1, 1, "a", ""): "1", set(1, 1, "", "a"): "1",
		set(1, 1, "b", "a c"): "1", set(1, 1, strings.Repeat("x", 129)): "1", set(1, 0): "2",
		gset(1, 0, "a", "b"): "7", gset(1, 0): "7", gset(1, 1): "5", gset(1, 1, seventeen...): "5", gset(1, 1, "b", "a"): "5",
		gset(1, 1, "a", "b b"): "1", gset(1, 1, "b", "a a"): "1",
	}
	var scenes []scene
	for request, code := range bad {
		scenes = append(scenes, scene{request[:min(len(request), 60)], "a > " + request + "\na < E 1 " + code + "\na sync"})
	}
	each(t, []string{"3"}, scenes)
}

// What breaks the framing closes without a byte; replies that are due are written first.
func TestFramingOfWire3(t *testing.T) {
	t.Parallel()
	q := func(b []byte) string { return fmt.Sprintf("%q", b) }
	bad := map[string]string{
		"op by its first byte":         `"X"`,
		"op 0":                         `"\x00"`,
		"a keep-alive of text wires":   `"\n"`,
		"acquire too short":            q([]byte("A\x00\x09")),
		"acquire too long":             q([]byte("A" + be16(139))),
		"release too short":            q([]byte("R\x00\x0f")),
		"release too long":             q([]byte("R" + be16(145))),
		"acquire set too short":        q([]byte("S\x00\x0a")),
		"acquire set too long":         q([]byte("S" + be16(2076))),
		"release set too short":        q([]byte("G\x00\x10")),
		"release set too long":         q([]byte("G" + be16(2082))),
		"id 0 of an acquire":           q(frame3('A', u64(0), []byte{0, 1}, []byte("k"))),
		"id 0 of a release":            q(frame3('R', u64(0), u64(1), []byte("k"))),
		"id 0 before a bad lease":      q(frame3('A', u64(0), []byte{0, 0}, []byte("k"))),
		"id 0 of a set":                q(frame3('S', u64(0), []byte{0, 1, 1, 1, 'k'})),
		"count above what is there":    q(frame3('S', u64(1), []byte{0, 1, 2, 1, 'k'})),
		"count below what is there":    q(frame3('S', u64(1), []byte{0, 1, 1, 1, 'k', 1, 'l'})),
		"key length beyond the body":   q(frame3('S', u64(1), []byte{0, 1, 1, 2, 'k'})),
		"key length short of the body": q(frame3('S', u64(1), []byte{0, 1, 1, 1, 'k', 'l'})),
		"release set that is torn":     q(frame3('G', u64(1), u64(1), []byte{2, 1, 'k'})),
		"bad framing before a bad key": q(frame3('S', u64(1), []byte{0, 0, 2, 0, 9})),
	}
	var scenes []scene
	for name, request := range bad {
		scenes = append(scenes, scene{name, `
			a > A 1 0 9 k
			a > A 2 0 9 k
			a > A 3 9 9 k
			a > ` + request + `
			a < { A 1 $x ; T 2 }
			a < end
			b > A 4 9 9 k
			b sync
			b > R 5 $x k      # the acquire that waited has left the queue
			b < R 5 $x
			b < A 4 $b`})
	}
	each(t, []string{"3"}, scenes)
}
