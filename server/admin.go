package server

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/ticketing-go/ticketing/raftglue"
)

// Limits of the admin listener. It serves few readers, and must not cost the lock service anything.
const (
	adminConnections  = 16 // further ones wait to be accepted
	adminReadTime     = 5 * time.Second
	adminWriteTime    = 10 * time.Second
	adminIdleTime     = 30 * time.Second
	adminHeaderBytes  = 8 << 10
	adminReplyBacklog = 4 // pages of metrics that are made at a time
)

// Admin serves /metrics, /healthz, /readyz and /status. It only reads.
type Admin struct {
	http *http.Server
	ln   net.Listener
	addr string
}

// ListenAdmin takes addr (port 0: any); who connects waits until Serve. A port in use is a *PortInUseError.
func ListenAdmin(addr string) (*Admin, error) {
	network := "tcp"
	if host, _, _ := splitAddress(addr); net.ParseIP(host).To4() != nil {
		network = "tcp4" // else 0.0.0.0 would let IPv6 in as well
	}
	ln, err := net.Listen(network, addr)
	if err != nil {
		if isInUse(err) {
			return nil, &PortInUseError{addr, err}
		}
		return nil, fmt.Errorf("ADMIN_BIND: %w", err)
	}
	return &Admin{ln: ln, addr: ln.Addr().String()}, nil
}

// Serve answers from source until Stop.
func (a *Admin) Serve(source Source, log *slog.Logger) {
	a.http = &http.Server{
		Handler:           adminPages(source),
		ReadHeaderTimeout: adminReadTime,
		ReadTimeout:       adminReadTime,
		WriteTimeout:      adminWriteTime,
		IdleTimeout:       adminIdleTime,
		MaxHeaderBytes:    adminHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	// Ends with Stop, which closes the listener.
	go func() { _ = a.http.Serve(netutil.LimitListener(a.ln, adminConnections)) }()
}

// Addr is the address that is listened on.
func (a *Admin) Addr() string { return a.addr }

// Stop ends the listener, waits for answers under way until ctx is done, and closes what is left.
func (a *Admin) Stop(ctx context.Context) {
	_ = a.ln.Close() // Shutdown does not know it yet if the goroutine has not begun
	if a.http != nil && a.http.Shutdown(ctx) != nil {
		_ = a.http.Close()
	}
}

func adminPages(source Source) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(newRegistry(source), promhttp.HandlerOpts{MaxRequestsInFlight: adminReplyBacklog}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ok, reason := source.Ready(); !ok {
			http.Error(w, reason, http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	})
	mux.HandleFunc("/status", func(w http.ResponseWriter, _ *http.Request) {
		s := source.Snapshot()
		ok, reason := source.Ready()
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(newStatusPage(&s, ok, reason)) // a reader that has gone needs no answer
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "read-only", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

// GraceReason is the reason for which a node in a grace is not ready.
func GraceReason(left time.Duration) string {
	seconds := (left + time.Second - 1) / time.Second
	return fmt.Sprintf("grace: no grants for another %d seconds, since holders may have been forgotten", seconds)
}

// StatusPage is /status. Its names are part of what operators rely on: they are added to, not changed.
type StatusPage struct {
	Notice      string           `json:"notice"`
	Node        string           `json:"node"`
	Mode        string           `json:"mode"` // single or cluster
	Version     string           `json:"version"`
	Commit      string           `json:"commit,omitempty"`
	Fingerprint string           `json:"identity_fingerprint,omitempty"` // 64 hex digits
	Ready       bool             `json:"ready"`
	Reason      string           `json:"reason,omitempty"` // why not ready
	UptimeS     float64          `json:"uptime_seconds"`
	GraceLeftS  float64          `json:"grace_remaining_seconds"`
	Keys        int              `json:"keys"`
	KeysHeld    int              `json:"keys_held"`
	Waiters     int              `json:"waiters"`
	IdleKeys    int              `json:"idle_keys_with_waiter"` // must be 0
	Connections int              `json:"connections"`
	InFlight    StatusInFlight   `json:"in_flight"`
	GatesClosed []string         `json:"gates_closed"`
	Totals      StatusTotals     `json:"totals"`
	BusyShare   StatusBusyShare  `json:"busy_share_since_start"`
	Cluster     *raftglue.Status `json:"cluster,omitempty"`
}

// StatusInFlight are commands that are read and not yet decided.
type StatusInFlight struct {
	Acquires int `json:"acquires"`
	Releases int `json:"releases"`
}

// StatusTotals are what was counted since the start.
type StatusTotals struct {
	Grants      uint64 `json:"grants"`
	Releases    uint64 `json:"releases"`
	NotHeld     uint64 `json:"not_held"`
	Timeouts    uint64 `json:"wait_timeouts"`
	Busy        uint64 `json:"busy"`
	Expiries    uint64 `json:"lease_expiries"`
	Revocations uint64 `json:"revocations"`
	HandOvers   uint64 `json:"hand_overs"`
}

// StatusBusyShare are shares of the time since the start, 0..1.
type StatusBusyShare struct {
	Apply float64   `json:"apply"`
	Loops []float64 `json:"event_loops"`
}

func newStatusPage(s *Snapshot, ready bool, reason string) *StatusPage {
	t := &s.Table
	p := &StatusPage{
		Notice: "what this node believes at this moment; it may be stale", Node: s.Node, Mode: s.Mode, Version: s.Version,
		Commit: s.Commit, Ready: ready, Reason: reason, UptimeS: s.Uptime.Seconds(), GraceLeftS: s.GraceLeft.Seconds(),
		Keys: t.Keys, KeysHeld: t.Held, Waiters: t.Waiters, IdleKeys: s.IdleKeys, Connections: s.Loops.Connections,
		InFlight: StatusInFlight{s.InFlightAcquires, s.InFlightReleases}, GatesClosed: []string{},
		Totals: StatusTotals{
			Grants: t.Grants, Releases: t.Releases, NotHeld: t.NotHelds, Timeouts: t.Timeouts,
			Busy:     s.BusyInFlight + t.BusyKeys + t.BusyWaiters + t.BusyKeyWaiters + t.BusySpent + t.BusyGrace,
			Expiries: t.Expiries, Revocations: t.Revocations, HandOvers: t.HandOvers,
		},
		BusyShare: StatusBusyShare{Apply: share(s.ApplyBusy, s.Uptime), Loops: []float64{}},
		Cluster:   s.Cluster,
	}
	if s.Fingerprint != [32]byte{} {
		p.Fingerprint = hex.EncodeToString(s.Fingerprint[:])
	}
	for _, busy := range s.Loops.Busy {
		p.BusyShare.Loops = append(p.BusyShare.Loops, share(busy, s.Uptime))
	}
	for _, g := range []struct {
		name   string
		closed bool
	}{{"acquires", s.AcquiresGateClosed}, {"keys", t.KeysGateClosed}, {"waiters", t.WaitersGateClosed}} {
		if g.closed {
			p.GatesClosed = append(p.GatesClosed, g.name)
		}
	}
	return p
}

func share(part, whole time.Duration) float64 {
	if whole <= 0 {
		return 0
	}
	return part.Seconds() / whole.Seconds()
}
