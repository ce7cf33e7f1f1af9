package codec_test

import (
	"bytes"
	"errors"
	"strconv"
	"testing"

	"github.com/ticketing-go/ticketing/codec"
)

// greetings are those that testdata names.
var greetings = map[string]*codec.Greeting{
	"single": {
		Nonce48:  [6]byte{0xab, 0xcd, 0xef, 0x00, 0x00, 0x01},
		Nonce128: [16]byte{0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf},
		Mode:     0, Slot: 255, Fingerprint: codec.SingleFingerprint(),
	},
	"cluster": {
		Nonce48:  [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		Nonce128: [16]byte{0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf},
		Mode:     1, Slot: 2, Fingerprint: codec.ClusterFingerprint(clusterID),
	},
}

var clusterID = [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

func checkGoldenHandshake(t *testing.T, w codec.Wire, c codec.ClientWire, g golden, says []string) {
	t.Helper()
	switch says[0] {
	case "greeting":
		greeting := greetings[says[1]]
		if got := w.AppendGreeting(nil, greeting); !bytes.Equal(got, g.bytes) {
			t.Errorf("%s: AppendGreeting = %x, want %x", g.at, got, g.bytes)
		}
		var challenge codec.Challenge
		if n, err := c.DecodeChallenge(g.bytes, &challenge); n != len(g.bytes) || err != nil {
			t.Errorf("%s: DecodeChallenge(%q) = %d, %v, want all", g.at, g.bytes, n, err)
		}
	case "misgreeted":
		var challenge codec.Challenge
		if n, err := c.DecodeChallenge(g.bytes, &challenge); n != 0 || !errors.Is(err, codec.ErrBadRequest) {
			t.Errorf("%s: DecodeChallenge(%q) = %d, %v, want bad_request", g.at, g.bytes, n, err)
		}
	case "login":
		checkGoldenLogin(t, w, c, g, greetings[says[1]], parseKey(t, says[2]))
	case "answer":
		answer, n, err := w.DecodeAnswer(g.bytes)
		if n != len(g.bytes) || err != nil || !bytes.HasPrefix(g.bytes, answer) || len(answer) < 32 {
			t.Errorf("%s: DecodeAnswer(%q) = %q, %d, %v, want it all", g.at, g.bytes, answer, n, err)
		}
	case "no-answer":
		answer, n, err := w.DecodeAnswer(g.bytes)
		if n != 0 || answer != nil || !errors.Is(err, codec.ErrAuthFailed) {
			t.Errorf("%s: DecodeAnswer(%q) = %q, %d, %v, want auth_failed", g.at, g.bytes, answer, n, err)
		}
	case "half-answer":
		if answer, n, err := w.DecodeAnswer(g.bytes); n != 0 || answer != nil || err != nil {
			t.Errorf("%s: DecodeAnswer(%q) = %q, %d, %v, want to need more", g.at, g.bytes, answer, n, err)
		}
	case "accepted":
		if got := w.AppendAccepted(nil); !bytes.Equal(got, g.bytes) {
			t.Errorf("%s: AppendAccepted = %x, want %x", g.at, got, g.bytes)
		}
		if n, known, err := c.DecodeOutcome(g.bytes); n != len(g.bytes) || !known || err != nil {
			t.Errorf("%s: DecodeOutcome(%x) = %d, %v, %v, want all, known", g.at, g.bytes, n, known, err)
		}
	case "refused":
		if got := w.AppendRefused(nil); !bytes.Equal(got, g.bytes) {
			t.Errorf("%s: AppendRefused = %x, want %x", g.at, got, g.bytes)
		}
	default:
		t.Errorf("%s: what does %q say?", g.at, says)
	}
}

// checkGoldenLogin takes a client through the handshake: its login must be the bytes, and be found right.
func checkGoldenLogin(t *testing.T, w codec.Wire, c codec.ClientWire, g golden, greeting *codec.Greeting, token []byte) {
	t.Helper()
	challenge := codec.Challenge{Fingerprint: greeting.Fingerprint}
	if _, err := c.DecodeChallenge(w.AppendGreeting(nil, greeting), &challenge); err != nil {
		t.Fatalf("%s: %v", g.at, err)
	}
	if got := c.AppendLogin(nil, token, &challenge); !bytes.Equal(got, g.bytes) {
		t.Errorf("%s: AppendLogin = %q, want %q", g.at, got, g.bytes)
	}
	answer, n, err := w.DecodeAnswer(g.bytes)
	if n != len(g.bytes) || err != nil {
		t.Errorf("%s: DecodeAnswer(%q) = %d, %v, want all", g.at, g.bytes, n, err)
	}
	want := w.AppendAnswer([]byte("before "), token, greeting)
	if got := append([]byte("before "), answer...); !bytes.Equal(got, want) {
		t.Errorf("%s: the answer is %q, AppendAnswer says %q", g.at, got, want)
	}
}

func TestFingerprints(t *testing.T) {
	// From Python's hashlib.
	single, cluster := codec.SingleFingerprint(), codec.ClusterFingerprint(clusterID)
	wantSingle, _ := parseBytes(t, "ff4d4698ae53ede382f96885dadeba243d2d124ded967b336908d00399c87b97")
	wantCluster, _ := parseBytes(t, "59ec5dbe2235f61942123fd807364e163b00572fa275671439bf56a08feaa853")
	if !bytes.Equal(single[:], wantSingle) || !bytes.Equal(cluster[:], wantCluster) {
		t.Errorf("got %x and %x,\nwant %x and %x", single, cluster, wantSingle, wantCluster)
	}
}

// TestFingerprintOfSingleModeIsKnown: a client of a single server needs to be told nothing.
func TestFingerprintOfSingleModeIsKnown(t *testing.T) {
	var c codec.Challenge
	if _, err := codec.ClientV3.DecodeChallenge(codec.V3.AppendGreeting(nil, greetings["single"]), &c); err != nil {
		t.Fatal(err)
	}
	if c.Fingerprint != codec.SingleFingerprint() {
		t.Errorf("got fingerprint %x", c.Fingerprint)
	}
	c.Fingerprint = [32]byte{1}
	if _, err := codec.ClientV3.DecodeChallenge(codec.V3.AppendGreeting(nil, greetings["cluster"]), &c); err != nil {
		t.Fatal(err)
	}
	if c.Fingerprint != [32]byte{1} {
		t.Errorf("the cluster's fingerprint was overwritten with %x", c.Fingerprint)
	}
}

// TestAnswerDependsOnAll: whatever is signed, a change of it changes the answer.
func TestAnswerDependsOnAll(t *testing.T) {
	for _, w := range wires {
		seen := map[string]string{}
		note := func(name string, token string, change func(*codec.Greeting)) {
			g := *greetings["cluster"]
			change(&g)
			answer := string(w.wire.AppendAnswer(nil, []byte(token), &g))
			if other, ok := seen[answer]; ok {
				t.Errorf("wire %s: the same answer with %s and %s", w.wire.Name(), name, other)
			}
			seen[answer] = name
		}
		note("nothing changed", "alpha", func(*codec.Greeting) {})
		note("another token", "alphb", func(*codec.Greeting) {})
		note("no token", "", func(*codec.Greeting) {})
		note("a longer token", "alpha-0123456789abcdef-0123456789abcdef-0123456789abcdef-0123456789abcdef", func(*codec.Greeting) {})
		if w.wire != codec.V3 {
			note("another nonce", "alpha", func(g *codec.Greeting) { g.Nonce48[5]++ })
			continue
		}
		note("another nonce", "alpha", func(g *codec.Greeting) { g.Nonce128[15]++ })
		note("another mode", "alpha", func(g *codec.Greeting) { g.Mode = 0 })
		note("another slot", "alpha", func(g *codec.Greeting) { g.Slot = 3 })
		note("another fingerprint", "alpha", func(g *codec.Greeting) { g.Fingerprint[31]++ })
	}
}

// TestAnswerAtEverySplit: an answer and a request right behind it, cut anywhere, are one answer and the same request.
func TestAnswerAtEverySplit(t *testing.T) {
	for _, w := range wires {
		var c codec.Challenge
		if _, err := w.client.DecodeChallenge(w.wire.AppendGreeting(nil, greetings["single"]), &c); err != nil {
			t.Fatal(err)
		}
		login := w.client.AppendLogin(nil, []byte("alpha"), &c)
		stream := w.client.AppendAcquire(bytes.Clone(login), 7, 5, 30, []byte("seat-17"))
		for cut := range stream {
			answer, n, err := w.wire.DecodeAnswer(stream[:cut:cut])
			if err != nil || cut < len(login) && n != 0 || cut >= len(login) && n != len(login) {
				t.Errorf("wire %s: DecodeAnswer of %d bytes of %q = %q, %d, %v", w.wire.Name(), cut, stream, answer, n, err)
			}
		}
	}
}

// TestTextAnswerIsOfTheAlphabet tries each byte at each place of a digest.
func TestTextAnswerIsOfTheAlphabet(t *testing.T) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for at := range 43 {
		for c := range 256 {
			line := append(bytes.Repeat([]byte{'a'}, 43), '\n')
			line[at] = byte(c)
			_, n, err := codec.V1.DecodeAnswer(line)
			good := bytes.IndexByte([]byte(alphabet), byte(c)) >= 0
			if good != (n == 44 && err == nil) || !good && !errors.Is(err, codec.ErrAuthFailed) {
				t.Errorf("DecodeAnswer(%s) = %d, %v, want it taken: %v", strconv.Quote(string(line)), n, err, good)
			}
		}
	}
}

// TestChallengeNonceOfAnyForm: a client takes all that is behind the first space as the nonce, and hashes it as it is.
func TestChallengeNonceOfAnyForm(t *testing.T) {
	line := []byte("sha256 another server's  nonce\n")
	var c codec.Challenge
	if n, err := codec.ClientV1.DecodeChallenge(line, &c); n != len(line) || err != nil {
		t.Fatalf("DecodeChallenge(%q) = %d, %v", line, n, err)
	}
	if got, want := string(c.Nonce), "another server's  nonce"; got != want {
		t.Errorf("got nonce %q, want %q", got, want)
	}
	// From Python: SHA-256 of "alphaanother server's  nonce".
	const want = "XwloKVoosvJXMneZIO9oYC8hMIB8_1drIrYnvbNQi4Q\n"
	if got := string(codec.ClientV1.AppendLogin(nil, []byte("alpha"), &c)); got != want {
		t.Errorf("AppendLogin = %q, want %q", got, want)
	}
}

func TestChallengeLineOf256Bytes(t *testing.T) {
	for _, long := range []int{256, 257} {
		line := append([]byte("sha256 "), bytes.Repeat([]byte{'n'}, long-7)...)
		var c codec.Challenge
		n, err := codec.ClientV1.DecodeChallenge(append(line, '\n'), &c)
		if taken := n == long+1 && err == nil; taken != (long <= codec.MaxHandshakeLine) {
			t.Errorf("a line of %d bytes: %d, %v", long, n, err)
		}
	}
}
