package eventloop

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// secureRig serves over TLS.
func secureRig(t testing.TB, change func(*Config, *fakeHost)) *rig {
	return start(t, func(c *Config, h *fakeHost) {
		c.TLS = serverConfig
		if change != nil {
			change(c, h)
		}
	})
}

// Both versions are spoken, and what comes right behind the handshake is served.
func TestTLSVersions(t *testing.T) {
	r := secureRig(t, nil)
	for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		r.tls = clientConfig.Clone()
		r.tls.MinVersion, r.tls.MaxVersion = v, v
		for range 50 {
			c := r.raw()
			c.send(append(c.digest(""), acquire(1, "k")...))
			c.granted(1, "k")
			if got := c.Conn.(*tls.Conn).ConnectionState().Version; got != v {
				t.Fatalf("version %x, want %x", got, v)
			}
			c.Close()
		}
	}
}

// Plain text on a TLS port ends in silence or an alert, never in a challenge; TLS on a plain port is a bad answer.
func TestTLSMismatch(t *testing.T) {
	secure, plain := secureRig(t, nil), start(t, nil)
	c, err := net.Dial("tcp", secure.addr)
	if err != nil {
		t.Fatal(err)
	}
	cl := wrap(t, c)
	cl.send([]byte(strings.Repeat("-", 43) + "\n"))
	if got, _ := io.ReadAll(cl.in); bytes.Contains(got, []byte("sha256")) || len(got) > 16 {
		t.Errorf("plain text on a TLS port got %q", got)
	}
	if n := secure.e.Stats().HandshakeFailures["tls_handshake"]; n != 1 {
		t.Errorf("%d failed TLS handshakes, want 1", n)
	}
	plain.tls = clientConfig
	p := plain.raw()
	if err := p.Conn.(*tls.Conn).Handshake(); err == nil {
		t.Error("a TLS handshake succeeded on a plain port")
	}
	old := secure.e.Stats().Authenticated
	secure.tls = clientConfig.Clone()
	secure.tls.MaxVersion = tls.VersionTLS11
	if err := secure.raw().Conn.(*tls.Conn).Handshake(); err == nil {
		t.Error("TLS 1.1 was taken")
	}
	if now := secure.e.Stats().Authenticated; now != old {
		t.Error("somebody was authenticated")
	}
}

// chopped writes in pieces, so that records straddle reads.
type chopped struct {
	net.Conn
	size int
}

func (c chopped) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		var m int
		m, err = c.Conn.Write(p[:min(c.size, len(p))])
		n += m
		p = p[m:]
	}
	return n, err
}

func TestTLSRecordsInPieces(t *testing.T) {
	r := secureRig(t, nil)
	for _, size := range []int{1, 7, 1000} {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		cl := wrap(t, tls.Client(chopped{c, size}, clientConfig))
		all := cl.digest("")
		for i := range uint64(50) {
			all = append(all, acquire(i, "k")...)
		}
		cl.send(all)
		for i := range uint64(50) {
			cl.granted(i, "k")
		}
	}
}

// corrupting spoils the bytes that are written once it is told to.
type corrupting struct {
	net.Conn
	on bool
}

func (c *corrupting) Write(p []byte) (int, error) {
	if c.on {
		p = bytes.Clone(p)
		p[len(p)-1] ^= 1
	}
	return c.Conn.Write(p)
}

// A spoiled record ends the session with an alert, and only that session.
func TestTLSCorruptRecord(t *testing.T) {
	r := secureRig(t, nil)
	other := r.dial()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	bad := &corrupting{Conn: c}
	cl := wrap(t, tls.Client(bad, clientConfig))
	cl.send(cl.digest(""))
	cl.send(acquire(1, "k"))
	cl.granted(1, "k")
	bad.on = true
	cl.send(acquire(2, "k"))
	if _, err := cl.frame(); err == nil || !strings.Contains(err.Error(), "bad record MAC") {
		t.Errorf("got %v, want an alert", err)
	}
	until(t, "Disconnected", 5*time.Second, func() bool { return len(r.h.all("disconnected")) == 1 })
	other.send(acquire(3, "k"))
	other.granted(3, "k")
}

// Handshakes that stall, more than may compute at a time, keep neither each other nor anybody else out, and each is gone in
// time with its goroutine. One that sends nothing has no goroutine at all.
func TestTLSStalledHandshakes(t *testing.T) {
	t.Parallel()
	r := secureRig(t, nil)
	served := r.dial()
	served.send(acquire(1, "k"))
	served.granted(1, "k")
	begin := time.Now()
	var stalled []net.Conn
	const n = 300
	for i := range n {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			_, _ = c.Write([]byte{22, 3, 1, 2, 0, 1})
		}
		stalled = append(stalled, c)
	}
	until(t, "all to stall", 5*time.Second, func() bool { return r.e.Stats().Connections == n+1 })
	for range 20 {
		before := time.Now()
		c := r.dial()
		c.send(acquire(2, "k"))
		c.granted(2, "k")
		c.Close()
		served.send(acquire(3, "k"))
		served.granted(3, "k")
		if d := time.Since(before); d > time.Second {
			t.Errorf("an honest client took %v", d)
		}
	}
	for _, c := range stalled {
		_ = c.SetReadDeadline(begin.Add(authTimeout + 2*time.Second))
		_, _ = io.Copy(io.Discard, c)
		if d := time.Since(begin); d > authTimeout+time.Second {
			t.Fatalf("a stalled handshake ended after %v", d)
		}
	}
}

// More than may be kept for a handshake is not kept.
func TestTLSFlood(t *testing.T) {
	r := secureRig(t, nil)
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	record := append([]byte{22, 3, 1, 0x40, 0}, make([]byte, 1<<14)...)
	for err == nil {
		_, err = c.Write(record)
	}
	until(t, "the close", 5*time.Second, func() bool { return r.e.Stats().Connections == 0 })
}

// Certificates are swapped through the configuration, for new connections only.
func TestTLSReload(t *testing.T) {
	second, secondClient := selfSigned()
	current := make(chan *tls.Config, 1)
	current <- serverConfig
	r := start(t, func(c *Config, _ *fakeHost) {
		c.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cfg := <-current
			current <- cfg
			return cfg, nil
		}}
	})
	old := r.dial()
	old.send(acquire(1, "k"))
	old.granted(1, "k")
	<-current
	current <- second
	r.tls = secondClient
	c := r.dial()
	c.send(acquire(2, "k"))
	c.granted(2, "k")
	old.send(acquire(3, "k"))
	old.granted(3, "k")
	r.tls = clientConfig
	if err := r.raw().Conn.(*tls.Conn).Handshake(); err == nil {
		t.Error("the old certificate is still shown")
	}
}

// Key updates, asked for or not, are answered in the middle of a session. Go's client sends none.
func TestTLSKeyUpdate(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("needs openssl")
	}
	r := secureRig(t, nil)
	cmd := exec.Command(openssl, "s_client", "-connect", r.addr, "-tls1_3")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var out bytes.Buffer
	cmd.Stdout = writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(p)
	})
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	step := func(send, want string) {
		t.Helper()
		_, _ = io.WriteString(in, send)
		until(t, want, 5*time.Second, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return strings.Contains(out.String(), want)
		})
		mu.Lock()
		out.Reset()
		mu.Unlock()
	}
	step("", "sha256 ")
	step(strings.Repeat("-", 43)+"\n"+string(acquire(1, "first")), "first")
	for range 3 {
		step("K\n", "KEYUPDATE") // and asks for ours
		step(string(acquire(2, "second")), "second")
		step("k\n", "KEYUPDATE")
		step(string(acquire(3, "third")), "third")
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// recording keeps what is read.
type recording struct {
	net.Conn
	got bytes.Buffer
}

func (c *recording) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.got.Write(p[:n])
	return n, err
}

// The last record of a session that the server ends is an alert: a client can tell the end from a cut.
func TestTLSCloseNotify(t *testing.T) {
	r := secureRig(t, nil)
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	raw := &recording{Conn: conn}
	cfg := clientConfig.Clone()
	cfg.MaxVersion = tls.VersionTLS12 // 1.3 hides what a record is
	c := wrap(t, tls.Client(raw, cfg))
	c.send(append(c.digest(""), 'x'))
	c.wantFrame("Ebad_op")
	c.wantEnd()
	last := byte(0)
	for b := raw.got.Bytes(); len(b) > 5; b = b[min(len(b), 5+int(b[3])<<8+int(b[4])):] {
		last = b[0]
	}
	if last != 21 {
		t.Errorf("the last record is of type %d, want 21, an alert", last)
	}
}

// holding keeps all writes but the first until it is told to let them go in one.
type holding struct {
	net.Conn
	first bool
	held  []byte
}

func (c *holding) Write(p []byte) (int, error) {
	if !c.first {
		c.first = true
		return c.Conn.Write(p)
	}
	c.held = append(c.held, p...)
	return len(p), nil
}

// What comes in one piece with the end of the handshake is served, though no further byte comes.
func TestTLSRightBehindTheHandshake(t *testing.T) {
	r := secureRig(t, nil)
	for range 20 {
		conn, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		h := &holding{Conn: conn}
		c := wrap(t, tls.Client(h, clientConfig))
		if err := c.Conn.(*tls.Conn).Handshake(); err != nil {
			t.Fatal(err)
		}
		c.send(append([]byte(strings.Repeat("-", 43)+"\n"), acquire(1, "k")...))
		if _, err := conn.Write(h.held); err != nil {
			t.Fatal(err)
		}
		c.line()
		c.granted(1, "k")
		c.Close()
	}
}
