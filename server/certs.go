package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/goutils/syncutil"
)

// certificatePoll is how often the files are looked at. A change is taken when two looks in a row see the same files, so
// that a pair of which one file is written before the other is not tried half-way.
const certificatePoll = time.Second

// CertificateFiles name a certificate with its key, and the authorities that the other side must come from.
type CertificateFiles struct {
	setting       string // the setting of Cert; those of Key and CA follow from it
	Cert, Key, CA string // PEM files; CA may be empty
	MinVersion    uint16
}

// ClientCertificates are the files for client connections; Given says whether there are any.
func (s *Settings) ClientCertificates() CertificateFiles {
	return CertificateFiles{"TLS", s.TLSCert, s.TLSKey, "", s.TLSMinVersion}
}

// PeerCertificates are the files for connections between members; Given says whether there are any.
func (s *Settings) PeerCertificates() CertificateFiles {
	return CertificateFiles{"PEER_TLS", s.PeerTLSCert, s.PeerTLSKey, s.PeerTLSCA, s.TLSMinVersion}
}

// Given says whether there are files: without them there is no TLS.
func (f CertificateFiles) Given() bool { return f.Cert != "" }

// identity is what the files held when they were last good. It is never changed once made.
type identity struct {
	pair *tls.Certificate
	pool *x509.CertPool // nil without CA
}

// load reads the files. Its errors name files and never what they hold.
func (f CertificateFiles) load() (*identity, error) {
	var pem [3][]byte
	for i, file := range []struct{ path, part string }{{f.Cert, "_CERT"}, {f.Key, "_KEY"}, {f.CA, "_CA"}} {
		if file.path == "" {
			continue
		}
		content, err := os.ReadFile(file.path)
		if err != nil {
			return nil, &fileError{f.setting + file.part, err}
		}
		pem[i] = content
	}
	pair, err := tls.X509KeyPair(pem[0], pem[1])
	if err != nil {
		return nil, &SettingError{Setting: f.setting + "_CERT", Value: f.Cert, Allowed: fmt.Sprintf("is no pair with %s: %v", f.Key, err)}
	}
	id := &identity{pair: &pair}
	if f.CA != "" {
		id.pool = x509.NewCertPool()
		if !id.pool.AppendCertsFromPEM(pem[2]) {
			return nil, &SettingError{Setting: f.setting + "_CA", Value: f.CA, Allowed: "holds no certificate in PEM form"}
		}
	}
	return id, nil
}

// print is what tells one state of the files from another without reading them.
type print [3]os.FileInfo

func (f CertificateFiles) look() print {
	var p print
	for i, path := range []string{f.Cert, f.Key, f.CA} {
		if path != "" {
			p[i], _ = os.Stat(path) // a file that is gone for the moment is a state like any other
		}
	}
	return p
}

func (p print) equal(q print) bool {
	for i := range p {
		switch {
		case p[i] == nil && q[i] == nil:
		case p[i] == nil || q[i] == nil:
			return false
		case !os.SameFile(p[i], q[i]) || p[i].Size() != q[i].Size() || !p[i].ModTime().Equal(q[i].ModTime()):
			return false
		}
	}
	return true
}

// Certificates follow a set of CertificateFiles. Every handshake takes what was good last. All methods are safe for
// concurrent use.
type Certificates struct {
	files CertificateFiles
	log   *slog.Logger
	now   atomic.Pointer[identity]

	mu struct {
		sync.Mutex
		seen  print // at the last look
		tried print // when the files were last read, with or without success
	}
}

// NewCertificates reads the files for the first time.
func NewCertificates(f CertificateFiles, log *slog.Logger) (*Certificates, error) {
	c := &Certificates{files: f, log: log}
	c.mu.seen = f.look()
	c.mu.tried = c.mu.seen
	id, err := f.load()
	if err != nil {
		return nil, err
	}
	c.take(id)
	return c, nil
}

// Watch reads the files again whenever they have changed, on a worker of stop, until stop is stopped.
func (c *Certificates) Watch(stop *syncutil.Stopper) {
	stop.RunWorker(func() {
		tick := time.NewTicker(certificatePoll)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.poll()
			case <-stop.ShouldStop():
				return
			}
		}
	})
}

// poll looks once.
func (c *Certificates) poll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.files.look()
	settled := p.equal(c.mu.seen)
	c.mu.seen = p
	if settled && !p.equal(c.mu.tried) {
		c.reloadLocked(p)
	}
}

// Reload reads the files now (SIGHUP). A bad pair is logged and refused, and the old one stays.
func (c *Certificates) Reload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reloadLocked(c.files.look())
}

func (c *Certificates) reloadLocked(p print) {
	c.mu.tried = p
	id, err := c.files.load()
	if err != nil {
		c.log.Error("certificate not read again, the old one stays", "error", err.Error())
		return
	}
	c.take(id)
	c.log.Info("certificate read again", "file", c.files.Cert, "not_after", id.pair.Leaf.NotAfter)
}

func (c *Certificates) take(id *identity) {
	c.now.Store(id)
	if left := time.Until(id.pair.Leaf.NotAfter); left < 0 {
		c.log.Warn("certificate has expired", "file", c.files.Cert, "not_after", id.pair.Leaf.NotAfter)
	}
}

// NotAfter is the end of the present certificate's validity.
func (c *Certificates) NotAfter() time.Time { return c.now.Load().pair.Leaf.NotAfter }

// ServerConfig accepts connections with what is good at each handshake. With a CA the other side must show a certificate
// of it. The caller may clone it.
func (c *Certificates) ServerConfig() *tls.Config {
	cfg := &tls.Config{
		MinVersion: c.files.MinVersion,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.now.Load().pair, nil
		},
	}
	if c.files.CA == "" {
		return cfg
	}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	cfg.ClientCAs = c.now.Load().pool
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		id := c.now.Load()
		return &tls.Config{
			MinVersion:   c.files.MinVersion,
			Certificates: []tls.Certificate{*id.pair},
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    id.pool,
		}, nil
	}
	return cfg
}

// ClientConfig connects to another member: host is what its certificate must be for; the caller may clone the value and
// put another there. The own certificate is what is good at each handshake; the authority is that of the call, since
// package tls has no way to ask for it. Without a CA the system's authorities count.
func (c *Certificates) ClientConfig(host string) *tls.Config {
	return &tls.Config{
		MinVersion: c.files.MinVersion,
		ServerName: host,
		RootCAs:    c.now.Load().pool,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return c.now.Load().pair, nil
		},
	}
}
