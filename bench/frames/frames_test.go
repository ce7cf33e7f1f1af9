package frames

import (
	"bytes"
	"errors"
	"testing"
)

// Every reply decodes whole, and every proper prefix of it asks for more.
func TestDecode(t *testing.T) {
	cases := []struct {
		in   string
		want Reply
	}{
		{"A\x00\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x0a\x01seat\n", Reply{Op: Granted, Token: 10, Owner: 2561, Text: []byte("seat")}},
		{"R\x00\x00\x00\x00\x00\x00\x00\x0ak\n", Reply{Op: Released, Token: 10, Text: []byte("k")}},
		{"N\x0a\x00\x00\x00\x00\x00\x00\x01k\n", Reply{Op: NotHeld, Token: 10<<56 | 1, Text: []byte("k")}},
		{"T\x00\x00\x00\x00\x00\x00\x00\x07k\n", Reply{Op: TimedOut, Owner: 7, Text: []byte("k")}},
		{"B\x00\x00\x00\x00\x00\x00\x00\x07k\n", Reply{Op: Busy, Owner: 7, Text: []byte("k")}},
		{"Ebad_key\n", Reply{Op: Error, Text: []byte("bad_key")}},
		{"M10.0.0.1:5225\n", Reply{Op: Moved, Text: []byte("10.0.0.1:5225")}},
		{"\n", Reply{Op: KeepAlive}},
	}
	for _, c := range cases {
		var got Reply
		n, err := Decode([]byte(c.in+"A"), &got)
		if err != nil || n != len(c.in) || got.Op != c.want.Op || got.Token != c.want.Token || got.Owner != c.want.Owner || !bytes.Equal(got.Text, c.want.Text) {
			t.Errorf("Decode(%q) = %+v, %d, %v; want %+v", c.in, got, n, err, c.want)
		}
		for cut := range len(c.in) {
			if n, err := Decode([]byte(c.in[:cut]), &got); n != 0 || err != nil {
				t.Errorf("Decode(%q) = %d, %v; want more", c.in[:cut], n, err)
			}
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, in := range []string{"X\n", "E" + string(bytes.Repeat([]byte("x"), MaxBytes))} {
		if _, err := Decode([]byte(in), new(Reply)); !errors.Is(err, ErrReply) {
			t.Errorf("Decode(%q) = %v, want %v", in, err, ErrReply)
		}
	}
}

// The digest was computed with sha256sum(1) and basenc(1).
func TestAppendAnswer(t *testing.T) {
	got, err := AppendAnswer(nil, []byte("sha256 AAAAAAAA"), []byte("a token of sixteen"))
	if want := "W1ULBrARNihWHH7K8ZpRenLbk3ubZEWMhIP6LPxRDqQ\n"; err != nil || string(got) != want {
		t.Errorf("answer = %q, %v; want %q", got, err, want)
	}
	for _, line := range []string{"", "sha256", "sha512 AAAAAAAA", "sha256 AAAA"} {
		if _, err := AppendAnswer(nil, []byte(line), nil); !errors.Is(err, ErrChallenge) {
			t.Errorf("answer to %q: %v, want %v", line, err, ErrChallenge)
		}
	}
}
