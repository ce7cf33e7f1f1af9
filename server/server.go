// Package server puts the daemon together: it carries requests from the event loops to the lock table and replies back,
// decides how many commands may be in flight, reads the settings, shows what goes on, and starts and stops everything in
// order. It knows all the other packages and makes none of their decisions.
//
// # Who runs where
//
//	event loops (eventloop)   decode, call host.Request; write what host.NextReply gives
//	apply goroutine (applier) owns the lock table; sleeps until a loop rings, a deadline comes, or Raft calls
//	main goroutine (Run)      waits for signals; reloads; shuts down
//	admin goroutines          answer HTTP; ask the apply goroutine for numbers
//
// Loops and apply goroutine share two rings a loop and nothing else, and neither ever waits for the other: a loop that
// finds a ring full keeps what it has and comes back when it is kicked, the apply goroutine keeps a list.
package server

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/lni/goutils/syncutil"

	"github.com/ticketing-go/ticketing/codec"
	"github.com/ticketing-go/ticketing/eventloop"
	"github.com/ticketing-go/ticketing/locktable"
	"github.com/ticketing-go/ticketing/raftglue"
)

// ErrEngine is an event loop engine that ended by itself, which it must not.
var ErrEngine = errors.New("server: the event loops have ended")

// maxClusterKeys is the number of active keys that a cluster may have (PROTOCOL.md section 5).
const maxClusterKeys = 65536

// Server is one running daemon.
type Server struct {
	settings Settings
	log      *slog.Logger
	host     *host
	apply    *applier
	engine   *eventloop.Engine
	certs    *Certificates
	admin    *Admin
	claims   []*Claimed
	workers  *syncutil.Stopper
	started  time.Time
	failing  chan error // one slot: the first failure counts

	tokens *raftglue.TokenFile // of a single node with a data directory

	// Of a node of a cluster:
	member    *member
	node      *raftglue.Node
	peerCerts *Certificates
}

// Run starts the daemon, serves until a signal of signals says stop, and stops it. SIGHUP reads tokens and certificates
// again. It returns nil after SIGTERM or SIGINT; a second one while it stops ends it at once. Otherwise the error is one
// line, and ExitCode tells the daemon's exit code.
func Run(settings Settings, log *slog.Logger, warnings []string, signals <-chan os.Signal) error {
	for _, w := range warnings {
		log.Warn(w)
	}
	s, err := Start(settings, log)
	if err != nil {
		return err
	}
	for {
		select {
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				s.Reload()
				continue
			}
			log.Info("stopping", "signal", sig.String())
			return s.stopUnless(signals)
		case err := <-s.failing:
			s.Stop()
			return err
		case <-s.engine.Done():
			s.Stop()
			return fmt.Errorf("%w: %w", ErrEngine, s.engine.Err())
		case err := <-s.nodeFailed():
			s.Stop()
			return err
		}
	}
}

// stopUnless stops the server, but ends at once at a further signal other than SIGHUP.
func (s *Server) stopUnless(signals <-chan os.Signal) error {
	done := make(chan struct{})
	go func() { // ends with Stop, or with the process
		s.Stop()
		close(done)
	}()
	for {
		select {
		case <-done:
			return nil
		case sig := <-signals:
			if sig != syscall.SIGHUP {
				s.log.Warn("stopped at once", "signal", sig.String())
				return nil
			}
		}
	}
}

// Start starts a daemon that serves until Stop. On an error nothing is left running.
func Start(settings Settings, log *slog.Logger) (_ *Server, err error) {
	s := &Server{settings: settings, log: log, workers: syncutil.NewStopper(), started: time.Now(), failing: make(chan error, 1)}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	loops := eventloop.PlannedLoops(settings.EventLoops)
	// epoll_wait keeps a P until the scheduler takes it back: with as many Ps as cores and loops the apply goroutine does
	// not wait for that (measured: 0.83 against 1.05 million requests a second).
	runtime.GOMAXPROCS(runtime.NumCPU() + loops)
	if err := s.claim(); err != nil {
		return nil, err
	}
	if settings.AdminBind != "" { // before the first client: a start that fails on this port has granted nothing
		if s.admin, err = ListenAdmin(settings.AdminBind); err != nil {
			return nil, err
		}
	}
	if files := settings.ClientCertificates(); files.Given() {
		if s.certs, err = NewCertificates(files, log); err != nil {
			return nil, err
		}
		s.certs.Watch(s.workers)
	}
	s.host = newHost(loops)
	s.apply = newApplier(s.host, s.limits(), locktable.Token(settings.FirstToken))
	s.host.serve = s.apply.serve
	if settings.Clustered() {
		s.member = newMember(s)
		s.host.muted = s.member.muted
	} else if err := s.beginAlone(); err != nil {
		return nil, err
	}
	if err := s.listen(loops); err != nil {
		return nil, err
	}
	if s.member != nil {
		if err := s.join(); err != nil {
			return nil, err
		}
	}
	if s.admin != nil {
		s.admin.Serve(s, log)
	}
	s.announce()
	return s, nil
}

// claim takes all client ports for this process, and puts the ports that were chosen into the settings.
func (s *Server) claim() error {
	for _, at := range []*string{&s.settings.Bind, &s.settings.ListenV3, &s.settings.Listen03, &s.settings.Listen01} {
		if *at == "" {
			continue
		}
		c, err := Claim(*at)
		if err != nil {
			return err
		}
		s.claims = append(s.claims, c)
		*at = c.Addr
	}
	return nil
}

func (s *Server) limits() locktable.Limits {
	l := locktable.Limits{
		MaxKeys: s.settings.MaxKeys, MaxWaiters: s.settings.MaxWaiters, MaxTotalWaiters: s.settings.MaxTotalWaiters,
		MaxRecords: maxRecords, MaxEntries: maxEntries,
	}
	if s.settings.Clustered() {
		l.MaxKeys = maxClusterKeys
	}
	return l
}

// listen starts the loops, and then the apply goroutine, which may kick them from now on.
func (s *Server) listen(loops int) error {
	cfg := eventloop.Config{
		Loops: loops, MaxConnections: s.settings.MaxConnections, Tokens: bytesOf(s.settings.ClientTokens),
		Identity: s.identity, Log: s.log, Host: s.host,
	}
	for _, l := range s.settings.Listeners() {
		cfg.Listeners = append(cfg.Listeners, eventloop.Listener{Addr: l.Addr, Wire: wires[l.Wire]})
	}
	if s.certs != nil {
		cfg.TLS = s.certs.ServerConfig()
		cfg.TLS.DynamicRecordSizingDisabled = true // replies already come in batches
	}
	s.apply.turn.Lock() // what loops hand over before kick is set waits
	engine, err := eventloop.Start(cfg)
	if err == nil {
		s.engine, s.apply.kick, s.apply.running = engine, engine.Kick, true
		go s.apply.run() // ends with quit, which Stop closes
	}
	s.apply.turn.Unlock()
	return err
}

var wires = map[string]codec.Wire{
	codec.V1.Name(): codec.V1, codec.V3.Name(): codec.V3, codec.V03.Name(): codec.V03, codec.V01.Name(): codec.V01,
}

// identity is what wire 3's hello tells.
func (s *Server) identity() (mode, slot uint8, fingerprint [32]byte, ok bool) {
	if s.member == nil {
		return 0, 255, codec.SingleFingerprint(), true
	}
	n := s.member.node.Load()
	if n == nil {
		return 0, 0, [32]byte{}, false
	}
	cluster, at, formed := n.Identity()
	return 1, uint8(at), codec.ClusterFingerprint(cluster), formed
}

func bytesOf(secrets []Secret) [][]byte {
	var b [][]byte
	for _, s := range secrets {
		b = append(b, s.Bytes())
	}
	return b
}

func (s *Server) announce() {
	version, commit := Version()
	attrs := []any{"version", version, "commit", commit, "pid", os.Getpid(), "tls", s.certs != nil, "tokens", len(s.settings.ClientTokens)}
	for _, l := range s.settings.Listeners() {
		attrs = append(attrs, "wire_"+l.Wire, l.Addr)
	}
	if s.admin != nil {
		attrs = append(attrs, "admin", s.admin.Addr())
	}
	s.log.Info("serving", attrs...)
}

// Reload reads client tokens and certificates again; what is bad is logged and the old stays. Connections of tokens that
// are gone are closed.
func (s *Server) Reload() {
	if tokens, ok := s.settings.ReloadTokens(s.log); ok {
		if len(tokens) == 0 && len(s.settings.ClientTokens) > 0 {
			s.log.Error("client tokens not read again: none are left, which would open the server")
		} else {
			s.engine.SetTokens(bytesOf(tokens))
		}
	}
	for _, c := range []*Certificates{s.certs, s.peerCerts} {
		if c != nil {
			c.Reload()
		}
	}
}

// fail ends the server with an error. Any goroutine may call it; the first error counts.
func (s *Server) fail(err error) {
	select {
	case s.failing <- err:
	default:
	}
}

// nodeFailed yields the error after which a node takes part in its cluster no more; nil on a node alone.
func (s *Server) nodeFailed() <-chan error {
	if s.node == nil {
		return nil
	}
	return s.node.Failed()
}
