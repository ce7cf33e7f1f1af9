package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lni/goutils/syncutil"
)

// authority issues certificates for 127.0.0.1.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue returns a pair in PEM form whose common name is name.
func (a *authority) issue(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func put(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// syncBuffer is a log that a test may read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// handshake connects client and server over loopback and returns the common name that the client saw.
func handshake(server, client *tls.Config) (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	done := make(chan error, 1) // one result
	// Ends with the handshake, its deadline, or the listener.
	go func() {
		c, err := ln.Accept()
		if err != nil {
			done <- err
			return
		}
		defer c.Close()
		if err = c.SetDeadline(time.Now().Add(5 * time.Second)); err == nil {
			_, err = tls.Server(c, server).Write([]byte("."))
		}
		done <- err
	}()
	c, err := net.DialTimeout("tcp", ln.Addr().String(), 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	cl := tls.Client(c, client)
	// With TLS 1.3 the client learns of a refused certificate only when it reads.
	if _, err := cl.Read(make([]byte, 1)); err != nil {
		c.Close()
		<-done
		return "", err
	}
	return cl.ConnectionState().PeerCertificates[0].Subject.CommonName, <-done
}

func (a *authority) clientConfig() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"}
}

func TestCertificatesFollowTheirFiles(t *testing.T) {
	ca := newAuthority(t)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cert, key := ca.issue(t, "first")
	put(t, certFile, cert)
	put(t, keyFile, key)
	s, _ := mustLoad(t, nil, "TLS_CERT="+certFile, "TLS_KEY="+keyFile)
	var out syncBuffer
	c, err := NewCertificates(s.ClientCertificates(), slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	cfg := c.ServerConfig().Clone()
	sees := func(want string) {
		t.Helper()
		if got, err := handshake(cfg, ca.clientConfig()); err != nil || got != want {
			t.Errorf("handshake shows %q, %v; want %q", got, err, want)
		}
	}
	sees("first")

	// A change is taken at the second look that sees it.
	cert, key = ca.issue(t, "second")
	put(t, certFile, cert)
	c.poll()
	sees("first")
	put(t, keyFile, key)
	c.poll()
	sees("first")
	c.poll()
	sees("second")
	if strings.Contains(out.String(), "not read again") {
		t.Errorf("a pair was tried half-way: %s", out.String())
	}

	// A bad pair is refused, logged once, and the old one stays.
	cert, _ = ca.issue(t, "third")
	put(t, certFile, cert)
	for range 4 {
		c.poll()
	}
	sees("second")
	if n := strings.Count(out.String(), "not read again"); n != 1 {
		t.Errorf("%d lines about the bad pair, want 1: %s", n, out.String())
	}
	put(t, keyFile, []byte("no key"))
	c.Reload()
	sees("second")
	if n := strings.Count(out.String(), "not read again"); n != 2 {
		t.Errorf("%d lines after SIGHUP with a bad pair, want 2", n)
	}
	if strings.Contains(out.String(), "no key\"") {
		t.Error("the log shows what is in the key file")
	}

	// SIGHUP takes a good pair at once.
	cert, key = ca.issue(t, "fourth")
	put(t, certFile, cert)
	put(t, keyFile, key)
	c.Reload()
	sees("fourth")
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	c.poll()
	c.poll()
	sees("fourth")
}

func TestCertificateWatchEnds(t *testing.T) {
	ca := newAuthority(t)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cert, key := ca.issue(t, "first")
	put(t, certFile, cert)
	put(t, keyFile, key)
	c, err := NewCertificates(CertificateFiles{"TLS", certFile, keyFile, "", tls.VersionTLS13}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	stop := syncutil.NewStopper()
	c.Watch(stop)
	cert, key = ca.issue(t, "second")
	put(t, certFile, cert)
	put(t, keyFile, key)
	deadline := time.Now().Add(10 * time.Second)
	for name := ""; name != "second"; {
		if time.Now().After(deadline) {
			t.Fatal("a change was not taken within 10 s")
		}
		if name, err = handshake(c.ServerConfig(), ca.clientConfig()); err != nil {
			t.Fatal(err)
		}
	}
	stop.Stop() // waits for the worker
}

func TestTLSMinVersion(t *testing.T) {
	ca := newAuthority(t)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cert, key := ca.issue(t, "x")
	put(t, certFile, cert)
	put(t, keyFile, key)
	for _, c := range []struct {
		setting string
		max     uint16
		ok      bool
	}{{"1.3", tls.VersionTLS13, true}, {"1.3", tls.VersionTLS12, false}, {"1.2", tls.VersionTLS12, true}, {"1.2", tls.VersionTLS11, false}} {
		s, _ := mustLoad(t, nil, "TLS_CERT="+certFile, "TLS_KEY="+keyFile, "TLS_MIN_VERSION="+c.setting)
		certs, err := NewCertificates(s.ClientCertificates(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		client := ca.clientConfig()
		client.MinVersion, client.MaxVersion = tls.VersionTLS10, c.max
		if _, err := handshake(certs.ServerConfig(), client); (err == nil) != c.ok {
			t.Errorf("TLS_MIN_VERSION=%s, client up to %s: %v, want ok %v", c.setting, tls.VersionName(c.max), err, c.ok)
		}
	}
}

func TestMutualTLSOfMembers(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	make1 := func(a *authority, trust *authority) *Certificates {
		dir := t.TempDir()
		cert, key := a.issue(t, "member")
		put(t, filepath.Join(dir, "cert"), cert)
		put(t, filepath.Join(dir, "key"), key)
		put(t, filepath.Join(dir, "ca"), trust.pem)
		c, err := NewCertificates(CertificateFiles{"PEER_TLS", filepath.Join(dir, "cert"), filepath.Join(dir, "key"), filepath.Join(dir, "ca"), tls.VersionTLS13}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b, c := make1(ca, ca), make1(ca, ca), make1(stranger, ca)
	if _, err := handshake(a.ServerConfig(), b.ClientConfig("127.0.0.1")); err != nil {
		t.Errorf("two members: %v", err)
	}
	early := b.ClientConfig("127.0.0.1")
	cert, key := stranger.issue(t, "member")
	put(t, b.files.Cert, cert)
	put(t, b.files.Key, key)
	b.Reload()
	if _, err := handshake(a.ServerConfig(), early); err == nil {
		t.Error("a member calls with the certificate of before the reload")
	}
	cert, key = ca.issue(t, "member")
	put(t, b.files.Cert, cert)
	put(t, b.files.Key, key)
	b.Reload()
	if _, err := handshake(a.ServerConfig(), early); err != nil {
		t.Errorf("two members after a reload: %v", err)
	}
	if _, err := handshake(a.ServerConfig(), b.ClientConfig("127.0.0.2")); err == nil {
		t.Error("a member took a certificate for another host")
	}
	if _, err := handshake(a.ServerConfig(), c.ClientConfig("127.0.0.1")); err == nil {
		t.Error("a member let in a certificate of a foreign authority")
	}
	if _, err := handshake(c.ServerConfig(), a.ClientConfig("127.0.0.1")); err == nil {
		t.Error("a member connected to a certificate of a foreign authority")
	}
	if _, err := handshake(a.ServerConfig(), ca.clientConfig()); err == nil {
		t.Error("a member let in a side without a certificate")
	}
}

func TestBadPairsStopTheStart(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.issue(t, "one")
	other, _ := ca.issue(t, "two")
	good, goodKey := writeFile(t, "cert", string(cert)), writeFile(t, "key", string(key))
	for _, c := range []struct{ cert, key string }{
		{writeFile(t, "c", string(other)), goodKey}, {good, writeFile(t, "k", "nothing")}, {writeFile(t, "c", ""), goodKey}, {goodKey, good},
	} {
		if _, _, err := Load(nil, []string{"TLS_CERT=" + c.cert, "TLS_KEY=" + c.key}); ExitCode(err) != ExitSetting {
			t.Errorf("bad pair: %v, want a setting error", err)
		}
	}
	if _, _, err := Load(nil, []string{"PEER_TLS_CERT=" + good, "PEER_TLS_KEY=" + goodKey, "PEER_TLS_CA=" + writeFile(t, "ca", "x"),
		"CLUSTER=127.0.0.1:5225,a:1,a:2"}); ExitCode(err) != ExitSetting {
		t.Errorf("bad CA: %v, want a setting error", err)
	}
}
