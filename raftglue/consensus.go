package raftglue

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ticketing-go/ticketing/locktable"
)

// consensus is the Raft of a node that belongs to a cluster. It is made once in a node's life.
type consensus struct {
	raft *raft.Raft
	// early is raft for those whom Raft's own goroutines call, perhaps before NewRaft has returned.
	early  atomic.Pointer[raft.Raft]
	trans  *transport
	stream *raftStream
	stores *stores
	heard  *heard
	back   *comeback

	notify  chan bool     // unbuffered: Raft waits until the role watcher has seen each change
	changed chan struct{} // one slot: the configuration may have changed
	leading atomic.Bool   // as told last
	removed atomic.Bool   // the leader says that this incarnation is no member any more

	// futures holds the records that Raft has not resolved; unresolved counts them, so that sending never waits.
	futures    chan proposed
	unresolved atomic.Int32

	elections atomic.Uint64
	commits   commitTimes
}

type proposed struct {
	future  raft.ApplyFuture
	at      time.Time
	refused func()
}

// stores is where a node's log, votes and snapshots are.
type stores struct {
	log       raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore
	size      func() (entries, bytes int) // of the log since it was last compacted
	close     func() error
	fresh     bool // nothing was ever stored
}

func memStores() *stores {
	l := newMemLog()
	return &stores{l, newMemStable(), &memSnapshots{}, l.size, func() error { return nil }, true}
}

func (n *Node) raftConfig(notify chan<- bool) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = n.raftID()
	c.HeartbeatTimeout, c.ElectionTimeout = n.cfg.Election, n.cfg.Election
	c.LeaderLeaseTimeout = n.lease()
	c.CommitTimeout = min(max(n.cfg.Election/20, time.Millisecond), 50*time.Millisecond)
	c.MaxAppendEntries = maxAppendEntries
	c.BatchApplyCh = true
	c.TrailingLogs = maxTrailing
	// The compactor asks for snapshots by the bytes of the log; Raft's own rule, by entries, is a second net.
	c.SnapshotThreshold = maxTrailing
	c.NotifyCh = notify
	c.NoLegacyTelemetry = true
	c.Logger = newRaftLog(n.log)
	return c
}

func (n *Node) lease() time.Duration { return max(n.cfg.Election/2, 5*time.Millisecond) }

// startConsensus starts Raft for a node that has become part of a cluster, with the members given where it begins one.
// n.mu is held.
func (n *Node) startConsensus(st *stores, begin []member) error {
	c := &consensus{
		stores: st, notify: make(chan bool), changed: make(chan struct{}, 1),
		futures: make(chan proposed, maxAppendEntries), // above maxUnresolved
	}
	cfg := n.raftConfig(c.notify)
	c.stream = &raftStream{node: n, conns: make(chan peerConn), closed: make(chan struct{}), dialed: map[net.Conn]struct{}{}}
	c.heard = newHeard(func() ([]raft.ServerID, bool) { return c.voters(cfg.LocalID) })
	c.back = newComeback(func(id raft.ServerID) bool { _, ok := c.seat(id); return ok })
	kept, err := newTerms(st.stable)
	if err != nil {
		return fmt.Errorf("starting Raft: %w", err)
	}
	c.trans = &transport{raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: c.stream, MaxPool: 3, MaxRPCsInFlight: 1, Timeout: n.peerTimeout(), Logger: cfg.Logger,
	}), c.heard, c.back, kept}
	if begin != nil {
		var servers raft.Configuration
		for _, m := range begin {
			servers.Servers = append(servers.Servers, raft.Server{Suffrage: raft.Voter, ID: m.id(), Address: m.address()})
		}
		if err := raft.BootstrapCluster(cfg, st.log, kept, st.snapshots, c.trans, servers); err != nil {
			return fmt.Errorf("forming the cluster: %w", err)
		}
	}
	machine := &fsm{machine: n.cfg.Machine, configured: func(cfg *raft.Configuration) { n.configured(c, cfg) }}
	r, err := newRaft(cfg, machine, st, kept, c.trans)
	if err != nil {
		c.trans.Close()
		c.trans.CloseStreams()
		return fmt.Errorf("starting Raft: %w", err)
	}
	c.raft = r
	c.early.Store(r)
	n.consensus.Store(c)
	n.done.Add(4)
	go n.watchRole(c)   // until Stop
	go n.readFutures(c) // until Stop
	go n.runGate(c)     // until Stop
	go n.compact(c)     // until Stop
	return nil
}

// configured is told of a committed configuration; nil: one that is not known. Whoever has been a voter does not ask to be
// taken in again when it is no member any more, however short it was one. Raft's FSM goroutine calls it.
func (n *Node) configured(c *consensus, cfg *raft.Configuration) {
	if cfg != nil && slices.ContainsFunc(cfg.Servers, func(s raft.Server) bool {
		return s.ID == n.raftID() && s.Suffrage == raft.Voter
	}) {
		n.ready.voted.Store(true)
	}
	c.wake()
}

// newRaft is raft.NewRaft, which panics where the log begins behind the newest snapshot that can be restored.
func newRaft(cfg *raft.Config, machine raft.FSM, st *stores, kept raft.StableStore, trans raft.Transport) (r *raft.Raft, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case error:
			if !errors.Is(p, raft.ErrLogNotFound) {
				panic(p)
			}
			err = fmt.Errorf("a snapshot is missing or cannot be read: %w", p)
		default:
			panic(p)
		}
	}()
	return raft.NewRaft(cfg, machine, st.log, kept, st.snapshots, trans)
}

// peerTimeout bounds one Raft RPC, and the dialing of a peer for it.
func (n *Node) peerTimeout() time.Duration {
	return min(max(2*n.cfg.Election, 500*time.Millisecond), handshakeTimeout)
}

// wake tells the role watcher that the configuration may have changed.
func (c *consensus) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// configuration is the latest, which may not be committed. Raft does not say its index here.
func (c *consensus) configuration() raft.Configuration {
	r := c.early.Load()
	if r == nil {
		return raft.Configuration{}
	}
	f := r.GetConfiguration() // resolved already
	if f.Error() != nil {
		return raft.Configuration{}
	}
	return f.Configuration()
}

// fingerprint tells configurations apart. Incarnations do not repeat, so one that was left does not come back, but by
// taking a learner in and out again.
func fingerprint(cfg raft.Configuration) uint64 {
	h := fnv.New64a()
	for _, s := range cfg.Servers {
		fmt.Fprintf(h, "%d %s %s\n", s.Suffrage, s.ID, s.Address)
	}
	return h.Sum64()
}

func (c *consensus) seat(id raft.ServerID) (raft.Server, bool) {
	cfg := c.configuration()
	i := slices.IndexFunc(cfg.Servers, func(s raft.Server) bool { return s.ID == id })
	if i < 0 {
		return raft.Server{}, false
	}
	return cfg.Servers[i], true
}

func (c *consensus) voters(self raft.ServerID) (others []raft.ServerID, selfVotes bool) {
	cfg := c.configuration()
	for _, s := range cfg.Servers {
		switch {
		case s.Suffrage != raft.Voter:
		case s.ID == self:
			selfVotes = true
		default:
			others = append(others, s.ID)
		}
	}
	return others, selfVotes
}

// Propose asks Raft to commit a record, which is copied. It never waits. refused is called, once and from another
// goroutine, if Raft has refused the record: then it will never be applied. A record that was neither refused nor
// applied may yet be. The apply goroutine calls it.
func (n *Node) Propose(record []byte, refused func()) {
	c := n.consensus.Load()
	if c == nil || c.unresolved.Load() >= maxUnresolved {
		go refused() // ends at once
		return
	}
	c.unresolved.Add(1)
	c.futures <- proposed{c.raft.Apply(slices.Clone(record), 0), time.Now(), refused}
}

// readFutures waits for what becomes of proposed records; Node.Stop ends it, once Raft has shut down.
func (n *Node) readFutures(c *consensus) {
	defer n.done.Done()
	for {
		select {
		case p := <-c.futures:
			err := n.await(p.future)
			c.unresolved.Add(-1)
			switch {
			case err == nil:
				c.commits.observe(time.Since(p.at))
			case definitelyRefused(err):
				p.refused()
			}
		case <-n.stop:
			return
		}
	}
}

// definitelyRefused says whether an error of Apply means that the record will never be applied. Leadership lost and a
// shutdown leave that open.
func definitelyRefused(err error) bool {
	return errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipTransferInProgress) ||
		errors.Is(err, raft.ErrEnqueueTimeout)
}

// HeardMajority says whether this node, as leader, was acknowledged by a majority within its leader lease. It is about
// what was sent, so a process that was stopped for longer hears "no" when it wakes. Any goroutine may call it.
func (n *Node) HeardMajority() bool {
	c := n.consensus.Load()
	return c != nil && c.leading.Load() && c.heard.within(n.lease())
}

// commitTimes counts how long records took from Propose to commit and apply.
type commitTimes struct {
	buckets [locktable.HistogramBuckets]atomic.Uint64
	sum     atomic.Int64
}

func (t *commitTimes) observe(d time.Duration) {
	var h locktable.Histogram
	h.Observe(d)
	t.buckets[slices.Index(h.Buckets[:], 1)].Add(1)
	t.sum.Add(int64(d))
}

func (t *commitTimes) histogram() (h locktable.Histogram) {
	for i := range t.buckets {
		h.Buckets[i] = t.buckets[i].Load()
	}
	h.Sum = time.Duration(t.sum.Load())
	return h
}
