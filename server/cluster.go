package server

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ticketing-go/ticketing/codec"
	"github.com/ticketing-go/ticketing/locktable"
	"github.com/ticketing-go/ticketing/raftglue"
)

// member is the server's side of a cluster: the committer that proposes to Raft, and the Machine that Raft calls. Raft's
// goroutines reach the table through applier.call alone.
type member struct {
	a     *applier
	log   *slog.Logger
	fail  func(error)
	node  atomic.Pointer[raftglue.Node]
	ready chan struct{} // closed once node is set
	// notice tells the clients who leads.
	notice func(l *codec.Leader, self bool)

	// Under the turn:
	self   codec.Leader // where this node takes clients
	role   raftglue.Role
	stints uint64
	served bool // the clients were told that this node leads
	buf    []byte
	record locktable.Record // the one being applied
}

func newMember(s *Server) *member {
	m := &member{a: s.apply, log: s.log, fail: s.fail, ready: make(chan struct{})}
	m.self = codec.Leader{
		Addr: s.settings.Advertise, Addr03: s.settings.Advertise03, Addr01: s.settings.Advertise01, Slot: uint8(s.settings.Slot),
	}
	if s.settings.Bind == "" {
		m.self.Addr = "" // no listener of that wire: M has no address to tell there
	}
	m.notice = func(l *codec.Leader, self bool) { s.engine.Notice(l, self) }
	m.a.commit, m.a.standing = m, inactive
	return m
}

// errLog is a committed record or a snapshot that this node cannot read: it must not go on with a state of its own.
var errLog = errors.New("server: the log holds what this node cannot read")

// propose is committer's.
func (m *member) propose(_ time.Duration, r *locktable.Record) { m.send(r) }

func (m *member) send(r *locktable.Record) {
	m.buf = locktable.AppendRecord(m.buf[:0], r)
	by, seq := r.By, r.Seq
	m.node.Load().Propose(m.buf, func() {
		m.a.post(func() { m.a.table.Refuse(m.a.now(), by, seq) })
		if seq == 0 {
			time.AfterFunc(startRetry, func() { m.a.post(func() { m.beginAgain(by) }) })
		}
	})
}

// startRetry is how long after a refused start entry the next one is proposed: Raft refuses all while leadership is
// being handed over.
const startRetry = 10 * time.Millisecond

// beginAgain proposes a start entry for one that was refused, if this node still leads.
func (m *member) beginAgain(refused locktable.Proposer) {
	if m.role.Leading && refused.Stint == m.stints && !m.a.table.Leading() {
		m.begin()
	}
}

// Apply is raftglue.Machine's.
func (m *member) Apply(records [][]byte) {
	m.a.call(func() {
		for _, b := range records {
			if err := locktable.DecodeRecord(b, &m.record); err != nil {
				m.fail(errLog)
				return
			}
			m.a.table.Commit(m.a.now(), &m.record)
		}
		if m.a.table.Leading() && !m.served {
			m.served = true
			m.log.Info("serving as the leader", "next_token", uint64(m.a.table.NextToken()))
			m.notice(&m.self, true)
		}
	})
}

// Snapshot is raftglue.Machine's.
func (m *member) Snapshot() (b []byte) {
	m.a.call(func() { b = m.a.table.Snapshot(nil) })
	return b
}

// Restore is raftglue.Machine's.
func (m *member) Restore(snapshot []byte) (err error) {
	m.a.call(func() { err = m.a.table.Restore(m.a.now(), snapshot) })
	if err != nil {
		m.fail(errLog)
	}
	return err
}

// Role is raftglue.Machine's.
func (m *member) Role(r raftglue.Role) {
	<-m.ready // Start's caller closes it, at once
	m.a.call(func() { m.become(r) })
}

func (m *member) become(r raftglue.Role) {
	was := m.role
	m.role = r
	a := m.a
	if r.Leading {
		if !was.Leading {
			a.leader = nil // until the stint has begun, no leader is known to serve
			m.begin()
		}
		return
	}
	a.standing = inactive
	if r.Active {
		a.standing = follower
	}
	l := leaderOf(r.Leader)
	changed := (l == nil) != (a.leader == nil) || l != nil && *l != *a.leader
	a.leader = l
	a.table.Lose(a.now())
	if changed || m.served {
		m.served = false
		m.notice(l, false)
	}
}

// begin proposes the start of a new stint. Its number never repeats: the node's seed is above all earlier ones'.
func (m *member) begin() {
	n := m.node.Load()
	if m.stints == 0 {
		m.stints = n.StintSeed()
	}
	m.stints++
	m.served = false
	first, grace := n.Terms()
	by := locktable.Proposer{Incarnation: n.Incarnation(), Stint: m.stints}
	m.send(m.a.table.Begin(m.a.now(), by, locktable.StartTerms{
		FirstToken: locktable.Token(first), Grace: grace, Addresses: addresses(&m.self),
	}))
}

// addresses writes where a node takes clients, for others to read with leaderOf.
func addresses(l *codec.Leader) string {
	return strings.Join([]string{l.Addr, l.Addr03, l.Addr01}, " ")
}

// leaderOf reads what addresses wrote; nil if no leader is known.
func leaderOf(i raftglue.LeaderInfo) *codec.Leader {
	if !i.Known {
		return nil
	}
	l := &codec.Leader{Slot: uint8(i.Slot)}
	if parts := strings.Split(i.Addresses, " "); len(parts) == 3 {
		l.Addr, l.Addr03, l.Addr01 = parts[0], parts[1], parts[2]
	}
	return l
}

// join starts Raft. The loops and the apply goroutine run already, and answer not_active.
func (s *Server) join() error {
	m := s.member
	cfg := raftglue.Config{
		Self: s.settings.Advertise, Members: s.settings.Cluster, PeerBind: s.settings.PeerBind,
		PeerPortOffset: s.settings.PeerPortOffset, PeerToken: s.settings.PeerToken.Bytes(),
		Election: s.settings.Election, DataDir: s.settings.DataDir, Form: "explicit", NodeName: s.settings.NodeName,
		Addresses: addresses(&m.self), MaxLease: s.longestLease(), Log: s.log, Machine: m,
	}
	if s.settings.FormAuto {
		cfg.Form = "auto"
	}
	if files := s.settings.PeerCertificates(); files.Given() {
		certs, err := NewCertificates(files, s.log)
		if err != nil {
			return err
		}
		certs.Watch(s.workers)
		s.peerCerts = certs
		cfg.PeerTLSServer, cfg.PeerTLSClient = certs.ServerConfig(), certs.ClientConfig("")
	}
	node, err := raftglue.Start(cfg)
	if err != nil {
		return err
	}
	m.node.Store(node)
	s.node = node
	close(m.ready)
	return nil
}

// longestLease is the longest lease that a listener of this node can admit.
func (s *Server) longestLease() time.Duration {
	longest := time.Duration(0)
	for _, l := range s.settings.Listeners() {
		longest = max(longest, wires[l.Wire].MaxLease())
	}
	return longest
}

// muted says whether this node believes that it leads and has heard from no majority for longer than its leader lease.
func (m *member) muted() bool {
	n := m.node.Load()
	return n != nil && !n.HeardMajority()
}
