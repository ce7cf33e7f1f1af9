package raftglue

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

var testToken = []byte("the peers' token")

func welcomeAll(own Incarnation) func(*preface) verdict {
	return func(*preface) verdict { return verdict{code: welcome, own: own, start: start{3, 4}} }
}

// pair runs both sides of a handshake over a pipe.
func pair(t *testing.T, dialer, acceptor []byte, p preface, judge func(*preface) verdict) (got preface, v verdict, derr, aerr error) {
	t.Helper()
	c, s := net.Pipe()
	done := make(chan struct{})
	go func() { // ends with the handshake
		defer close(done)
		got, aerr = acceptPeer(s, acceptor, time.Now().Add(time.Second), judge)
		if aerr != nil {
			s.Close()
		}
	}()
	v, derr = openPeer(c, dialer, p, time.Second)
	if derr != nil {
		c.Close()
	}
	<-done
	return got, v, derr, aerr
}

func TestHandshake(t *testing.T) {
	own, meant := newIncarnation(), newIncarnation()
	p := preface{kindRaft, newClusterID(), meant, own, start{7, 8}, 2, "v1=10.0.0.2:5225"}
	got, v, derr, aerr := pair(t, testToken, testToken, p, welcomeAll(meant))
	if derr != nil || aerr != nil || got != p || v.own != meant || v.start != (start{3, 4}) {
		t.Errorf("got %+v, %+v, %v, %v; want %+v", got, v, derr, aerr, p)
	}
	p.slot, p.kind = -1, kindAsk
	if got, _, derr, aerr := pair(t, nil, nil, p, welcomeAll(meant)); derr != nil || aerr != nil || got != p {
		t.Errorf("without a token: got %+v, %v, %v", got, derr, aerr)
	}
}

func TestHandshakeRefusals(t *testing.T) {
	p := preface{kind: kindRaft, own: newIncarnation(), meant: newIncarnation()}
	if _, _, derr, aerr := pair(t, []byte("wrong"), testToken, p, welcomeAll(p.meant)); !errors.Is(derr, ErrPeerToken) || aerr == nil {
		t.Errorf("dialer with another token: %v, %v", derr, aerr)
	}
	// The acceptor does not know the token: the dialer notices before it says who it is.
	if _, _, derr, _ := pair(t, testToken, nil, p, welcomeAll(p.meant)); !errors.Is(derr, ErrPeerToken) {
		t.Errorf("acceptor with another token: %v", derr)
	}
	for code, want := range map[verdictCode]error{
		otherCluster: ErrOtherCluster, otherIncarnation: ErrOtherIncarnation, startsFell: ErrStartsFell, tooMany: errTooMany,
	} {
		judge := func(*preface) verdict { return verdict{code: code, own: p.meant} }
		if _, _, derr, aerr := pair(t, testToken, testToken, p, judge); !errors.Is(derr, want) || !errors.Is(aerr, want) {
			t.Errorf("verdict %d: %v, %v; want %v", code, derr, aerr, want)
		}
	}
	// A welcome from another than who was meant is none.
	if _, _, derr, _ := pair(t, testToken, testToken, p, welcomeAll(newIncarnation())); !errors.Is(derr, ErrOtherIncarnation) {
		t.Errorf("another incarnation: %v", derr)
	}
}

// recorder keeps what passes.
type recorder struct {
	net.Conn
	read, wrote bytes.Buffer
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.read.Write(p[:n])
	return n, err
}

func (r *recorder) Write(p []byte) (int, error) {
	r.wrote.Write(p)
	return r.Conn.Write(p)
}

// TestReplay plays a whole recorded conversation again, to an acceptor and to a dialer.
func TestReplay(t *testing.T) {
	p := preface{kind: kindAsk, own: newIncarnation()}
	c, s := net.Pipe()
	rec := &recorder{Conn: c}
	go acceptPeer(s, testToken, time.Now().Add(time.Second), welcomeAll(newIncarnation())) // ends with the handshake
	if _, err := openPeer(rec, testToken, p, time.Second); err != nil {
		t.Fatal(err)
	}
	c, s = net.Pipe()
	go func() { // ends with the pipe
		io.Copy(io.Discard, c)
	}()
	go c.Write(rec.wrote.Bytes()) // ends with the pipe
	if _, err := acceptPeer(s, testToken, time.Now().Add(time.Second), welcomeAll(newIncarnation())); !errors.Is(err, ErrPeerToken) {
		t.Errorf("a replayed dialer: %v", err)
	}
	s.Close()
	c, s = net.Pipe()
	go func() { // ends with the pipe
		io.Copy(io.Discard, s)
	}()
	go s.Write(rec.read.Bytes()) // ends with the pipe
	if _, err := openPeer(c, testToken, p, time.Second); !errors.Is(err, ErrPeerToken) {
		t.Errorf("a replayed acceptor: %v", err)
	}
	c.Close()
}

// TestReflection answers an acceptor's challenge with what another acceptor, of the same token, says to it.
func TestReflection(t *testing.T) {
	// The lengths of what is signed differ as well; the label must do it alone.
	if bytes.Equal(proof(testToken, "acceptor", []byte("x")), proof(testToken, "dialer", []byte("x"))) {
		t.Error("both roles sign alike")
	}
	c1, s1 := net.Pipe()
	result := make(chan error, 1)
	go func() { // ends with the handshake
		_, err := acceptPeer(s1, testToken, time.Now().Add(2*time.Second), welcomeAll(newIncarnation()))
		result <- err
	}()
	var nonce [nonceBytes]byte
	rand.Read(nonce[:])
	c1.Write(append([]byte(handshakeMagic), nonce[:]...))
	var challenge [nonceBytes + macBytes]byte
	io.ReadFull(c1, challenge[:])
	// The second acceptor is asked with the first one's nonce, and its proof is handed to the first.
	c2, s2 := net.Pipe()
	go acceptPeer(s2, testToken, time.Now().Add(2*time.Second), welcomeAll(newIncarnation())) // ends with the pipe
	c2.Write(append([]byte(handshakeMagic), challenge[:nonceBytes]...))
	var other [nonceBytes + macBytes]byte
	io.ReadFull(c2, other[:])
	raw := (&preface{kind: kindAsk}).append(nil)
	go c1.Write(append(raw, other[nonceBytes:]...)) // ends with the pipe
	if err := <-result; !errors.Is(err, ErrPeerToken) {
		t.Errorf("a reflected proof: %v", err)
	}
	c2.Close()
	c1.Close()
}

// TestSilence: who says nothing, or stops in the middle, is dropped after the time for the whole handshake, and holds
// nobody up.
func TestSilence(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		stranger := w.net.host("10.9.9.9")
		var conns []net.Conn
		for i := range maxHandshakes - 8 {
			c, err := stranger.dial(t.Context(), w.procs[0].peerAddress)
			if err != nil {
				t.Fatal(err)
			}
			c.Write([]byte(handshakeMagic)[:i%5])
			conns = append(conns, c)
		}
		start := time.Now()
		w.kill(1)
		w.start(1)
		w.within(3*time.Second, "all ready again", w.allReady)
		for _, c := range conns {
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Fatalf("silent connection: %v", err)
			}
			c.Close()
		}
		if took := time.Since(start); took < handshakeTimeout-time.Second || took > handshakeTimeout+time.Second {
			t.Errorf("silent connections were dropped after %v", took)
		}
	})
}

// TestTooManyHandshakes: beyond the bound a connection is closed at once.
func TestTooManyHandshakes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.start(0)
		defer w.stopAll()
		stranger := w.net.host("10.9.9.9")
		for i := range maxHandshakes + 3 {
			c, err := stranger.dial(t.Context(), w.procs[0].peerAddress)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			_, err = c.Read(make([]byte, 1))
			if closed := err == io.EOF; closed != (i >= maxHandshakes) {
				t.Errorf("connection %d: %v", i, err)
			}
		}
	})
}

func FuzzAcceptPeer(f *testing.F) {
	f.Add([]byte(handshakeMagic + "0123456789abcdef"))
	f.Add((&preface{kind: kindRaft, addresses: "x"}).append([]byte(handshakeMagic + "0123456789abcdef")))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, s := net.Pipe()
		go io.Copy(io.Discard, c) // ends with the pipe
		go func() {               // ends with the pipe
			c.Write(b)
			c.Close()
		}()
		if _, err := acceptPeer(s, testToken, time.Now().Add(time.Second), welcomeAll(Incarnation{})); err == nil {
			t.Errorf("%x was let in", b)
		}
		s.Close()
	})
}

func FuzzReadPreface(f *testing.F) {
	f.Add((&preface{kind: kindRaft, slot: 3, addresses: "abc"}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, raw, err := readPreface(bytes.NewReader(b))
		if err == nil && !bytes.Equal(p.append(nil), raw) {
			t.Errorf("%x reads as %+v, which writes as %x", raw, p, p.append(nil))
		}
	})
}

func TestSeenStarts(t *testing.T) {
	s := &seenStarts{last: map[Incarnation]start{}}
	a := newIncarnation()
	for i, c := range []struct {
		at   start
		good bool
	}{
		{start{2, 10}, true}, {start{2, 10}, true},
		{start{2, 11}, false}, // the same count, another start: the directory is a copy
		{start{1, 10}, false}, // older than what was seen
		{start{3, 12}, true}, {start{2, 10}, false},
		{start{0, 99}, true}, // no data directory: nothing to compare
	} {
		if got := s.check(a, c.at); got != c.good {
			t.Errorf("step %d, start %+v: got %v", i, c.at, got)
		}
	}
}
