package raftglue

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// socketWorld is a world on loopback sockets.
func socketWorld(t *testing.T, edit func(slot int, c *Config)) *world {
	w := newWorld(t, 3)
	var held []net.Listener
	for port := 31000; len(held) < 3 && port < 32000; port++ {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1000)); err == nil {
			w.members[len(held)] = fmt.Sprintf("127.0.0.1:%d", port)
			held = append(held, l)
		}
	}
	if len(held) < 3 {
		t.Fatal("no three free ports between 32000 and 33000")
	}
	for _, l := range held {
		l.Close()
	}
	w.edit = func(slot int, c *Config) {
		c.net = tcpNetwork{}
		if edit != nil {
			edit(slot, c)
		}
	}
	return w
}

// certificate makes a certificate for 127.0.0.1, signed by ca, or by itself where ca is nil.
func certificate(t *testing.T, ca *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "ticketing test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true,
		IsCA: ca == nil, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := c, any(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, _ := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func mutual(own *tls.Certificate, ca *tls.Certificate) (server, client *tls.Config) {
	pool := x509.NewCertPool()
	pool.AddCert(ca.Leaf)
	server = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*own}, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert}
	client = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*own}, RootCAs: pool}
	return server, client
}

func TestOverTLS(t *testing.T) {
	ca := certificate(t, nil)
	w := socketWorld(t, func(_ int, c *Config) { c.PeerTLSServer, c.PeerTLSClient = mutual(certificate(t, ca), ca) })
	w.startAll()
	defer w.stopAll()
	admin := Admin{Peer: w.procs[0].peerAddress, Token: testToken}
	_, admin.TLS = mutual(certificate(t, ca), ca)
	if f, err := admin.Init(50, nil); err != nil || f.Terms != (Terms{50, 250 * time.Second}) {
		t.Fatalf("init: %+v, %v", f, err)
	}
	w.within(10*time.Second, "all ready", w.allReady)
	w.mustCommit(5 * time.Second)
	slot := (w.leader().slotNow() + 1) % 3
	w.kill(slot)
	w.start(slot)
	w.within(20*time.Second, "all ready again", w.allReady)
	w.mustCommit(5 * time.Second)
	w.check()
	s, err := admin.Members()
	if err != nil || len(s.Members) != 3 || s.Role != "leader" {
		t.Errorf("members: %+v, %v", s, err)
	}
	if err := admin.Remove(7); err == nil {
		t.Error("slot 7 was removed")
	}
	if _, err := admin.Init(1, nil); err == nil {
		t.Error("init formed a second cluster")
	}
	for name, a := range map[string]Admin{
		"another's certificate": func() Admin {
			b := admin
			other := certificate(t, nil)
			b.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*other}, RootCAs: admin.TLS.RootCAs}
			return b
		}(),
		"no TLS":        {Peer: admin.Peer, Token: testToken},
		"another token": {Peer: admin.Peer, Token: []byte("wrong"), TLS: admin.TLS},
	} {
		if _, err := a.Members(); err == nil {
			t.Errorf("%s: let in", name)
		} else if bytes.Contains([]byte(err.Error()), testToken) {
			t.Errorf("%s: the token is in the error: %v", name, err)
		}
	}
}

// TestAMemberOfAnotherAuthority: init says that certificates do not fit, whichever side refuses.
func TestAMemberOfAnotherAuthority(t *testing.T) {
	ca, other := certificate(t, nil), certificate(t, nil)
	w := socketWorld(t, func(slot int, c *Config) {
		of := ca
		if slot == 2 {
			of = other
		}
		c.PeerTLSServer, c.PeerTLSClient = mutual(certificate(t, of), of)
	})
	w.startAll()
	defer w.stopAll()
	for slot, p := range w.procs {
		if _, err := p.form(0, nil); err == nil || !strings.Contains(err.Error(), "certificates of one authority") {
			t.Errorf("init on slot %d: %v", slot, err)
		}
	}
}

// blob is a Machine with a large state of a given size, which is whole or not.
type blob struct {
	*register
	mu    sync.Mutex
	state []byte
	bad   bool
	total atomic.Int64
}

func (b *blob) Apply(records [][]byte) {
	for _, r := range records {
		b.total.Add(int64(len(r)))
	}
}

func (b *blob) Snapshot() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

func (b *blob) Restore(s []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(s) - sha256.Size
	b.bad = n < 0 || sha256.Sum256(s[:n]) != [sha256.Size]byte(s[n:])
	b.state = bytes.Clone(s)
	return nil
}

func blobOf(n int) []byte {
	s := make([]byte, n, n+sha256.Size)
	for i := range s {
		s[i] = byte(i * i >> 7)
	}
	sum := sha256.Sum256(s)
	return append(s, sum[:]...)
}

// largestState is what 65,536 keys of 128 bytes take in a snapshot, with token, owner, lease and lengths, rounded up.
const largestState = 65536 * 192

var fullRate = flag.Duration("full-rate", 2*time.Second, "how long TestTheLogStaysSmall proposes as fast as it can")

// TestTheLogStaysSmall proposes the largest records as fast as they commit, and looks at what the logs hold meanwhile.
func TestTheLogStaysSmall(t *testing.T) {
	machines := map[int]*blob{}
	w := socketWorld(t, func(slot int, c *Config) {
		machines[slot] = &blob{register: c.Machine.(*register), state: blobOf(largestState)}
		c.Machine = machines[slot]
	})
	w.startAll()
	defer w.stopAll()
	w.form()
	w.within(10*time.Second, "all ready", w.allReady)
	largest := 0
	record := make([]byte, 256*190)
	l := w.leader()
	own := machines[l.slotNow()]
	sent, end := int64(0), time.Now().Add(*fullRate)
	for n := 0; time.Now().Before(end); n++ {
		if sent-own.total.Load() < 8*int64(len(record)) && l.reg.now().Leading {
			l.Propose(record, func() { own.total.Add(int64(len(record))) })
			sent += int64(len(record))
		} else {
			wait(50 * time.Microsecond)
		}
		if n%20 == 0 {
			for _, p := range w.procs {
				_, b := p.consensus.Load().stores.size()
				largest = max(largest, b)
			}
		}
	}
	mb := own.total.Load() >> 20
	t.Logf("%d MiB committed in %v, a log holds at most %d MiB", mb, *fullRate, largest>>20)
	if largest > 64<<20 {
		t.Errorf("a log held %d MiB; at most 64", largest>>20)
	}
	if mb > 200 {
		for slot, p := range w.procs {
			if p.Status().SnapshotIndex == 0 {
				t.Errorf("slot %d has taken no snapshot", slot)
			}
		}
	}
	w.within(20*time.Second, "all have the same log", func() bool {
		return own.total.Load() == machines[(l.slotNow()+1)%3].total.Load() || machines[(l.slotNow()+1)%3].state != nil
	})
}

// TestRestoringTenTimesTheLargestState has a new life of a member take over a state ten times as large as any.
func TestRestoringTenTimesTheLargestState(t *testing.T) {
	state := blobOf(10 * largestState)
	machines := map[int]*blob{}
	w := socketWorld(t, func(slot int, c *Config) {
		machines[slot] = &blob{register: c.Machine.(*register)}
		c.Machine, c.Election = machines[slot], time.Second // three such states are copied in one process
	})
	w.startAll()
	defer w.stopAll()
	w.form()
	w.within(10*time.Second, "all ready", w.allReady)
	for _, m := range machines {
		m.mu.Lock()
		m.state = state
		m.mu.Unlock()
	}
	l := w.leader()
	for range 100 {
		l.Propose(make([]byte, 100), func() {})
	}
	// All of them, for whoever leads then must have no log to send instead.
	for _, p := range w.procs {
		c := p.consensus.Load()
		rc := c.raft.ReloadableConfig()
		rc.TrailingLogs = 1
		w.within(20*time.Second, "a snapshot", func() bool {
			return errors.Join(c.raft.ReloadConfig(rc), c.raft.Snapshot().Error()) == nil
		})
	}
	slot := (l.slotNow() + 1) % 3
	w.kill(slot)
	start := time.Now()
	w.start(slot)
	w.within(60*time.Second, "the new life is ready", w.allReady)
	t.Logf("%d MiB restored, and ready, in %v", len(state)>>20, time.Since(start).Round(time.Millisecond))
	m := machines[slot]
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bad || !bytes.Equal(m.state, state) {
		t.Errorf("restored %d bytes, bad %v; want %d", len(m.state), m.bad, len(state))
	}
}

// TestStopEnds: nothing of a node is left when it has stopped.
func TestStopEnds(t *testing.T) {
	w := socketWorld(t, nil)
	w.startAll()
	w.form()
	w.within(10*time.Second, "all ready", w.allReady)
	for slot, p := range w.procs {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if err := p.Stop(ctx); err != nil {
			t.Errorf("slot %d: %v", slot, err)
		}
		if err := p.Stop(ctx); err != nil {
			t.Errorf("slot %d, again: %v", slot, err)
		}
		cancel()
		w.procs[slot] = nil
	}
}
