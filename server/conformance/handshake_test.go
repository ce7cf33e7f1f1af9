package conformance

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

const (
	goodToken  = "a-token-of-32-bytes-0123456789ab"
	otherToken = "another-token-9876543210-zyxwvut"
)

var challengeForm = regexp.MustCompile(`^sha256 [A-Za-z0-9_-]{8}\n$`)

// challenge reads the line of a text wire and returns the nonce.
func challenge(t testing.TB, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil || !challengeForm.MatchString(line) {
		t.Fatalf("challenge: got %q (%v), want %v", line, err, challengeForm)
	}
	return strings.TrimSuffix(strings.TrimPrefix(line, "sha256 "), "\n")
}

// digestOf is PROTOCOL.md 1.4 in words of its own.
func digestOf(token, nonce string) string {
	sum := sha256.Sum256([]byte(token + nonce))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// signatureOf is WIRES.md 3.1's answer in words of its own.
func signatureOf(token string, hello []byte) []byte {
	fingerprint := sha256.Sum256([]byte("ticketing/single/v3"))
	m := hmac.New(sha256.New, []byte(token))
	m.Write([]byte("TCK/CLIENT/AUTH3"))
	m.Write(hello[8:11])
	m.Write(fingerprint[:])
	m.Write(hello[11:])
	return m.Sum(nil)
}

// rest reads until the end.
func rest(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read to the end: got %q, then %v", b, err)
	}
	return string(b)
}

// PROTOCOL.md 1.2 to 1.5 on every text wire, plain and over TLS, with tokens and open.
func TestTextHandshake(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pair := writePair(t, dir, "handshake")
	a43 := strings.Repeat("A", 43)
	for _, given := range [][]string{nil, pair, {"CLIENT_TOKENS=" + goodToken + "," + otherToken}, append(pair, "CLIENT_TOKENS="+goodToken+","+otherToken)} {
		in := start(t, given...)
		in.spread = true
		open := in.token == ""
		rows := []struct {
			name   string
			answer func(nonce string) string
			ok     bool
		}{
			{"right", func(n string) string { return digestOf(goodToken, n) }, true},
			{"right for the second token", func(n string) string { return digestOf(otherToken, n) }, true},
			{"wrong", func(n string) string { return digestOf("a-token", n) }, open},
			{"of another nonce", func(string) string { return digestOf(goodToken, "AAAAAAAA") }, open},
			{"another character at the end", func(n string) string { return digestOf(goodToken, n)[:42] + "_" }, open},
			{"any 43 characters", func(string) string { return a43 }, open},
			{"42 characters", func(string) string { return a43[1:] }, false},
			{"44 characters", func(string) string { return a43 + "A" }, false},
			{"with padding", func(n string) string { return digestOf(goodToken, n) + "=" }, false},
			{"with CR", func(n string) string { return digestOf(goodToken, n) + "\r" }, false},
			{"a space in it", func(string) string { return " " + a43[1:] }, false},
			{"plain base64", func(string) string { return "+/" + a43[2:] }, false},
			{"empty", func(string) string { return "" }, false},
			{"257 bytes", func(string) string { return strings.Repeat("A", 257) }, false},
			{"a frame and no digest (client 0.0.2)", func(string) string { return "A\x00\x05\x00\x00\x00\x00\x00\x00\x00\x01k" }, false},
		}
		for _, w := range textWires {
			for _, r := range rows {
				t.Run(fmt.Sprintf("%s/%s/tls=%v/open=%v", w, r.name, in.tls, open), func(t *testing.T) {
					conn := in.connect(t, w)
					b := bufio.NewReader(conn)
					answer := r.answer(challenge(t, b)) + "\n"
					// Requests may follow at once.
					key := fmt.Sprintf("h%d", endings.Add(1))
					if _, err := conn.Write(clientWires[w].AppendAcquire([]byte(answer), 7, 1, 9, []byte(key))); err != nil {
						t.Fatal(err)
					}
					if !r.ok {
						if got := rest(t, b); got != "Eauth_failed\n" {
							t.Fatalf("got %q, want Eauth_failed and the end", got)
						}
						return
					}
					// Nothing but the reply comes.
					reply := make([]byte, len(granted(w, 'A', 7, 1, key)))
					if _, err := io.ReadFull(b, reply); err != nil || reply[0] != 'A' || !bytes.HasSuffix(reply, []byte(key+"\n")) {
						t.Fatalf("got %q (%v), want a grant", reply, err)
					}
				})
			}
		}
	}
}

// A line beyond 256 bytes is refused without waiting for its LF.
func TestTooLongAnswerIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	in := common(t, false)
	for _, w := range textWires {
		conn := in.connect(t, w)
		b := bufio.NewReader(conn)
		challenge(t, b)
		if _, err := conn.Write(bytes.Repeat([]byte{'A'}, 257)); err != nil {
			t.Fatal(err)
		}
		if got := rest(t, b); got != "Eauth_failed\n" {
			t.Errorf("wire %s: got %q, want Eauth_failed and the end", w, got)
		}
	}
}

// WIRES.md 3.1: hello, answer, result.
func TestHandshakeOfWire3(t *testing.T) {
	t.Parallel()
	pair := writePair(t, t.TempDir(), "handshake3")
	for _, given := range [][]string{nil, pair, {"CLIENT_TOKENS=" + goodToken + "," + otherToken}, append(pair, "CLIENT_TOKENS="+goodToken+","+otherToken)} {
		in := start(t, given...)
		open := in.token == ""
		for _, r := range []struct {
			name   string
			answer func(hello []byte) []byte
			ok     bool
		}{
			{"right", func(h []byte) []byte { return signatureOf(goodToken, h) }, true},
			{"right for the second token", func(h []byte) []byte { return signatureOf(otherToken, h) }, true},
			{"with the empty key", func(h []byte) []byte { return signatureOf("", h) }, open},
			{"wrong", func(h []byte) []byte { return signatureOf("wrong", h) }, open},
			{"last bit wrong", func(h []byte) []byte { s := signatureOf(goodToken, h); s[31] ^= 1; return s }, open},
			{"zeros", func([]byte) []byte { return make([]byte, 32) }, open},
		} {
			t.Run(fmt.Sprintf("%s/tls=%v/open=%v", r.name, in.tls, open), func(t *testing.T) {
				conn := in.connect(t, "3")
				hello := make([]byte, 28)
				if _, err := io.ReadFull(conn, hello); err != nil || string(hello[:12]) != "TCKCLI3\x00\x00\x03\x00\xff" {
					t.Fatalf("hello: got %q (%v)", hello, err)
				}
				key := fmt.Sprintf("h%d", endings.Add(1))
				if _, err := conn.Write(clientWires["3"].AppendAcquire(r.answer(hello), 7, 1, 9, []byte(key))); err != nil {
					t.Fatal(err)
				}
				if !r.ok {
					if got := rest(t, conn); got != "\x00" {
						t.Fatalf("got %q, want the result 0 and the end", got)
					}
					return
				}
				got := make([]byte, 1+19)
				if _, err := io.ReadFull(conn, got); err != nil || got[0] != 1 || got[1] != 'A' {
					t.Fatalf("got %q (%v), want the result 1 and a grant", got, err)
				}
			})
		}
	}
}

// 1.3: a nonce never comes twice.
func TestNoncesDiffer(t *testing.T) {
	t.Parallel()
	in := common(t, false)
	seen := map[string]bool{}
	for range 40 {
		for _, w := range []string{"v1", "3"} {
			conn := in.connect(t, w)
			b := bufio.NewReader(conn)
			var nonce string
			if w == "v1" {
				nonce = challenge(t, b)
			} else {
				hello := make([]byte, 28)
				if _, err := io.ReadFull(b, hello); err != nil {
					t.Fatal(err)
				}
				nonce = string(hello[12:])
			}
			if seen[nonce] {
				t.Fatalf("wire %s: nonce %q came twice", w, nonce)
			}
			seen[nonce] = true
			conn.Close()
		}
	}
}

// 1.6: 10 s for all of it, then the end without a byte, whatever was sent of the answer; with TLS, too.
func TestHandshakeTakesTenSeconds(t *testing.T) {
	t.Parallel()
	for _, overTLS := range []bool{false, true} {
		in := common(t, overTLS)
		for _, w := range wires {
			for _, part := range []string{"", "AAAA"} {
				t.Run(fmt.Sprintf("%s/%q/tls=%v", w, part, overTLS), func(t *testing.T) {
					t.Parallel()
					begin := time.Now()
					conn := in.connect(t, w)
					greeting := map[bool]int{true: 28, false: 16}[w == "3"]
					if _, err := io.ReadFull(conn, make([]byte, greeting)); err != nil {
						t.Fatal(err)
					}
					if _, err := conn.Write([]byte(part)); err != nil {
						t.Fatal(err)
					}
					if got := rest(t, conn); got != "" {
						t.Errorf("got %q, want the end without a byte", got)
					}
					wantTook(t, begin, 9500*time.Millisecond, 10500*time.Millisecond)
				})
			}
		}
	}
	t.Run("a TLS handshake that stands still", func(t *testing.T) {
		t.Parallel()
		begin := time.Now()
		conn, err := net.Dial("tcp", common(t, true).addr["v1"])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("\x16\x03\x01\x02\x00")); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		if b, err := io.ReadAll(conn); len(b) > 0 {
			t.Errorf("got %q (%v), want the end without a byte", b, err)
		}
		wantTook(t, begin, 9500*time.Millisecond, 10500*time.Millisecond)
	})
}

func wantTook(t testing.TB, begin time.Time, from, to time.Duration) {
	t.Helper()
	if took := time.Since(begin); took < from || took > to+slack(begin) {
		t.Errorf("took %v, want %v to %v (with slack %v)", took, from, to, to+slack(begin))
	}
}

// 1.2: with TLS nothing is sent in plain text first, on any wire; a client that speaks plain text gets nothing of the
// protocol; TLS 1.2 only where it is allowed.
func TestTLSOnly(t *testing.T) {
	t.Parallel()
	in := common(t, true)
	for _, w := range wires {
		conn, err := net.Dial("tcp", in.addr[w])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if n, err := conn.Read(make([]byte, 64)); n > 0 {
			t.Errorf("wire %s: %d bytes in plain text (%v)", w, n, err)
		}
		if _, err := conn.Write([]byte(strings.Repeat("A", 43) + "\n")); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(answerLimit))
		if b, _ := io.ReadAll(conn); bytes.Contains(b, []byte("sha256")) || bytes.Contains(b, []byte("TCK")) {
			t.Errorf("wire %s: %q in plain text", w, b)
		}
	}
	both := start(t, append(writePair(t, t.TempDir(), "old"), "TLS_MIN_VERSION=1.2")...)
	for _, c := range []struct {
		in  *instance
		max uint16
		ok  bool
	}{{in, tls.VersionTLS12, false}, {in, tls.VersionTLS13, true}, {both, tls.VersionTLS12, true}, {both, tls.VersionTLS11, false}} {
		conf := trust(t)
		conf.MinVersion, conf.MaxVersion = tls.VersionTLS10, c.max
		conn, err := tls.Dial("tcp", c.in.addr["v1"], conf)
		if (err == nil) != c.ok {
			t.Errorf("client up to %s: %v, want ok %v", tls.VersionName(c.max), err, c.ok)
		}
		if err == nil {
			challenge(t, bufio.NewReader(conn))
			conn.Close()
		}
	}
}

// 1.7: beyond MAX_CONNECTIONS, which counts all listeners, the end without a byte; the oldest connection that has been
// unauthenticated for more than 1 s makes room.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	in := start(t, "MAX_CONNECTIONS=4")
	for _, w := range wires {
		in.dial(t, w)
	}
	for _, w := range wires {
		if got := rest(t, in.connect(t, w)); got != "" {
			t.Errorf("wire %s beyond the limit: got %q, want the end without a byte", w, got)
		}
	}
}

func TestTheOldestUnauthenticatedMakesRoom(t *testing.T) {
	t.Parallel()
	in := start(t, "MAX_CONNECTIONS=3")
	member := in.dial(t, "v1")
	begin := time.Now()
	oldest := in.connect(t, "3")
	if _, err := io.ReadFull(oldest, make([]byte, 28)); err != nil {
		t.Fatal(err)
	}
	second := in.connect(t, "0.1")
	challenge(t, bufio.NewReader(second))
	if got := rest(t, in.connect(t, "v1")); got != "" {
		t.Fatalf("full with young connections: got %q, want the end without a byte", got)
	}
	// Tried until there is room: not before 1 s has passed, and then at once.
	var third *client
	eventually(t, answerLimit, "an old unauthenticated connection makes room", func() bool {
		c, err := in.login(t, "0.3", "")
		third = c
		return err == nil
	})
	wantTook(t, begin, time.Second, 2*time.Second)
	third.listen()
	third.grant(1, 1, 9, "k")
	if got := rest(t, oldest); got != "" {
		t.Errorf("the oldest got %q, want the end without a byte", got)
	}
	_ = second.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := second.Read(make([]byte, 1)); err == nil || ended(err) {
		t.Errorf("the second was closed too: %v", err)
	}
	member.grant(2, 1, 9, "l")
}

// 1.8: from the 11th wrong digest of an address within a minute its next challenges come 0.5 s late, doubling; other
// addresses and open servers are not touched.
func TestWrongDigestsHoldChallengesBack(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("loopback has one address here, and the test needs three")
	}
	t.Parallel()
	in := start(t, "CLIENT_TOKENS="+goodToken)
	from := func(local string) (net.Conn, time.Duration) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}}
		conn, err := d.Dial("tcp", in.addr["v1"])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		return conn, 0
	}
	wrong := func(local string) time.Duration {
		conn, _ := from(local)
		begin := time.Now()
		b := bufio.NewReader(conn)
		challenge(t, b)
		took := time.Since(begin)
		if _, err := conn.Write([]byte(strings.Repeat("A", 43) + "\n")); err != nil {
			t.Fatal(err)
		}
		if got := rest(t, b); got != "Eauth_failed\n" {
			t.Fatalf("got %q, want Eauth_failed", got)
		}
		return took
	}
	begin := time.Now()
	for i := range 11 {
		if took := wrong("127.0.0.2"); took > 300*time.Millisecond+slack(begin) {
			t.Errorf("challenge %d came after %v, want at once", i+1, took)
		}
	}
	for i, want := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second} {
		if took := wrong("127.0.0.2"); took < want-100*time.Millisecond || took > want+500*time.Millisecond+slack(begin) {
			t.Errorf("held challenge %d came after %v, want %v", i+1, took, want)
		}
	}
	if took := wrong("127.0.0.3"); took > 300*time.Millisecond+slack(begin) {
		t.Errorf("another address waited %v, want none", took)
	}
	// Health checks, which connect and leave, cost nothing.
	for range 30 {
		conn, _ := from("127.0.0.4")
		challenge(t, bufio.NewReader(conn))
		conn.Close()
	}
	if took := wrong("127.0.0.4"); took > 300*time.Millisecond+slack(begin) {
		t.Errorf("after health checks a challenge waited %v, want none", took)
	}
}
