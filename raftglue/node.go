package raftglue

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"crypto/rand"

	"github.com/hashicorp/raft"
)

// Config is what a node needs to know. Start copies it.
type Config struct {
	// Self is this node's client address, one of Members: the client addresses of 3 or 5 members in slot order, the
	// same list on all of them.
	Self    string
	Members []string
	// PeerBind is where peers are listened for. A member's peer address is its client address, its port plus
	// PeerPortOffset.
	PeerBind       string
	PeerPortOffset int
	PeerToken      []byte      // may be empty on loopback
	PeerTLSServer  *tls.Config // both nil: no TLS between peers
	PeerTLSClient  *tls.Config
	// Election is Raft's heartbeat and election timeout; the leader lease is half of it. At least 10 ms.
	Election time.Duration
	DataDir  string // empty: all state is in memory
	Form     string // "explicit" or "auto"
	NodeName string
	// Addresses is where this node takes clients, on each wire; opaque here, at most 1024 bytes. Others learn it as
	// LeaderInfo.Addresses.
	Addresses string
	MaxLease  time.Duration // the longest lease that this node's listeners admit
	Log       *slog.Logger
	// Machine must answer before Start is called, and until Stop has returned.
	Machine Machine

	net network // nil: TCP
	// judge replaces the node's judgement of a peer's preface, in the tests that show what it is good for; nil: none.
	judge func(n *Node, p *preface) verdict
}

// Node is a member of a cluster, or a process that wants to be one. Its methods may be called by any goroutine.
type Node struct {
	cfg         Config
	log         *slog.Logger
	net         network
	peerAddress string // where others dial this node
	start       start
	seed        uint64
	inc         Incarnation
	dir         *dataDir // nil: volatile
	seen        *seenStarts
	port        *peerPort

	mu        sync.Mutex
	formation formation
	addresses map[Incarnation]string // of those who opened connections for Raft

	now       atomic.Pointer[identityNow]
	consensus atomic.Pointer[consensus]
	gate      gate
	ready     readiness

	stop    chan struct{}
	stopped sync.Once
	failure atomic.Pointer[error] // the first
	failed  chan error            // one slot, for the first failure
	forming sync.Mutex            // held while this node coordinates
	done    sync.WaitGroup
}

// identityNow is what may be asked for without waiting for anything.
type identityNow struct {
	cluster ClusterID
	slot    int
	size    int
	formed  bool
	terms   Terms
}

func (cfg *Config) validate() error {
	switch {
	case len(cfg.Members) != 3 && len(cfg.Members) != 5:
		return fmt.Errorf("CLUSTER: %d members given; allowed are 3 or 5", len(cfg.Members))
	case !slices.Contains(cfg.Members, cfg.Self):
		return fmt.Errorf("ADVERTISE: %s is none of the members in CLUSTER", cfg.Self)
	case cfg.Form != "explicit" && cfg.Form != "auto":
		return fmt.Errorf("FORM: %q; allowed are explicit and auto", cfg.Form)
	case cfg.Election < 10*time.Millisecond:
		return fmt.Errorf("ELECTION_MS: %v; at least 10 ms", cfg.Election)
	case len(cfg.Addresses) > maxAddressesBytes:
		return fmt.Errorf("the client addresses take %d bytes; allowed are %d", len(cfg.Addresses), maxAddressesBytes)
	}
	for i, m := range cfg.Members {
		if slices.Contains(cfg.Members[:i], m) {
			return fmt.Errorf("CLUSTER: %s stands there twice", m)
		}
		if _, err := PeerAddress(m, cfg.PeerPortOffset); err != nil {
			return fmt.Errorf("CLUSTER: %w", err)
		}
	}
	return nil
}

// Start opens the peer port and, with a data directory that belongs to a cluster, goes on in it. Without one the node
// belongs to none: it asks the members to be taken in, and waits to be part of one that is formed.
func Start(cfg Config) (*Node, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Members = slices.Clone(cfg.Members)
	cfg.plant() // does nothing but in a build with the tag planted
	n := &Node{
		cfg: cfg, log: cfg.Log, net: cfg.net, addresses: map[Incarnation]string{},
		stop: make(chan struct{}), failed: make(chan error, 1),
	}
	if n.net == nil {
		n.net = tcpNetwork{}
	}
	n.gate.init()
	n.peerAddress, _ = PeerAddress(cfg.Self, cfg.PeerPortOffset) // validated
	n.formation = formation{slot: slices.Index(cfg.Members, cfg.Self), members: cfg.Members}
	st, err := n.openIdentity()
	if err != nil {
		return nil, err
	}
	n.formation.inc = n.inc
	ln, err := n.net.listen(cfg.PeerBind)
	if err != nil {
		n.closeDir(st)
		return nil, fmt.Errorf("peer port: %w", err)
	}
	n.port = &peerPort{node: n, ln: ln, handshakes: make(chan struct{}, maxHandshakes), open: map[net.Conn]struct{}{}}
	n.publish()
	if n.formation.formed {
		n.mu.Lock()
		err := n.startConsensus(st, nil)
		n.mu.Unlock()
		if err != nil {
			ln.Close()
			n.closeDir(st)
			return nil, &DirError{n.dir.path, err}
		}
	} else if cfg.Form == "auto" && cfg.DataDir == "" {
		n.log.Warn("FORM=auto without DATA_DIR cannot tell a first start from the loss of all nodes at once: after such " +
			"a loss tokens start again, and locks still held are granted again")
	}
	n.port.wg.Add(1)
	go n.port.serve() // until Stop closes the listener
	n.done.Add(1)
	go n.runJoin() // until Stop
	return n, nil
}

// openIdentity makes this start's incarnation, or takes up the data directory's. What it returns is not nil only for a
// node that is part of a cluster.
func (n *Node) openIdentity() (*stores, error) {
	n.start.Boot = randomUint64()
	n.seed = randomUint64()
	n.seen = &seenStarts{last: map[Incarnation]start{}}
	if n.cfg.DataDir == "" {
		n.inc = newIncarnation()
		return nil, nil
	}
	return n.openDataDir()
}

func randomUint64() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:])
}

// publish makes the formation visible to those who must not wait; n.mu is held, or nobody else is there yet.
func (n *Node) publish() {
	f := &n.formation
	n.now.Store(&identityNow{f.cluster, f.slot, f.size, f.formed, f.terms})
}

// Incarnation is this life's name.
func (n *Node) Incarnation() [16]byte { return n.inc }

// StintSeed is where this start's stint numbers begin: above all earlier starts' of the same incarnation, for 2^32
// stints, or 64 random bits where the incarnation is new.
func (n *Node) StintSeed() uint64 { return n.seed }

// Identity is the cluster and this node's slot in it; formed is false while the node is part of none.
func (n *Node) Identity() (cluster [16]byte, slot int, formed bool) {
	i := n.now.Load()
	return i.cluster, i.slot, i.formed
}

// Terms is what forming the cluster fixed, for every leader's start entry: the first token, and how long the first
// leader waits before its first grant.
func (n *Node) Terms() (firstToken uint64, grace time.Duration) {
	i := n.now.Load()
	return i.terms.FirstToken, i.terms.Grace
}

// Failed yields the error after which this node takes part no more and the process should end, if there is one: a disk
// that fails or stalls, a data directory that is older than the peers remember, a leader that cannot hand over.
func (n *Node) Failed() <-chan error { return n.failed }

// fail takes this node out of the cluster at once: its peers hear nothing more from it and elect another leader.
func (n *Node) fail(err error) {
	if n.leave(err) {
		n.log.Error("this node takes part no more", "error", err)
	}
}

// leave is fail for who tells the error itself; it says whether this is the first.
func (n *Node) leave(err error) bool {
	if !n.failure.CompareAndSwap(nil, &err) {
		return false
	}
	n.failed <- err
	n.isolate()
	return true
}

func (n *Node) isolate() {
	if c := n.consensus.Load(); c != nil {
		c.trans.Close()
		c.trans.CloseStreams()
		c.back.release(true)
	}
	n.port.cut()
}

func (n *Node) slotNow() int { return n.now.Load().slot }

func (n *Node) self() member {
	return member{n.slotNow(), n.cfg.Self, n.peerAddress, n.inc}
}

func (n *Node) raftID() raft.ServerID { return n.self().id() }

func (n *Node) caller() caller { return caller{n.net, n.cfg.PeerToken, n.cfg.PeerTLSClient} }

func (n *Node) preface(meant Incarnation) preface {
	i := n.now.Load()
	return preface{cluster: i.cluster, meant: meant, own: n.inc, start: n.start, slot: i.slot, addresses: n.cfg.Addresses}
}

// ask asks a peer; meant 0 asks whoever is there.
func (n *Node) ask(peer string, meant Incarnation, q *question, timeout time.Duration) (*reply, error) {
	return n.caller().ask(peer, n.preface(meant), q, timeout)
}

func (n *Node) learnAddresses(inc Incarnation, addresses string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addresses[inc] = addresses
	if len(n.addresses) <= 2*maxSlots {
		return
	}
	c := n.consensus.Load()
	if c == nil {
		return
	}
	keep := map[Incarnation]bool{inc: true}
	for _, m := range c.table() {
		keep[m.Inc] = true
	}
	for i := range n.addresses {
		if !keep[i] {
			delete(n.addresses, i)
		}
	}
}

// maxSlots is the number of slots of the largest cluster.
const maxSlots = 5

func (n *Node) addressesOf(inc Incarnation) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, ok := n.addresses[inc]
	return a, ok
}

// contacted takes note that a member of a cluster has opened a connection for Raft; it says whether that is this node's
// cluster.
func (n *Node) contacted(cluster ClusterID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.formation.formed
	if !n.formation.contacted(cluster) {
		return false
	}
	return before || n.enter(nil) == nil
}

// enter starts Raft for a node whose formation has just become formed; begin are the members where this node has begun
// the cluster. n.mu is held.
func (n *Node) enter(begin []member) error {
	n.publish()
	st, err := n.newStores()
	if err == nil {
		err = n.startConsensus(st, begin)
	}
	if err == nil {
		err = n.persist()
	}
	if err != nil {
		n.fail(err)
		return err
	}
	n.log.Info("this node is part of a cluster", "cluster", n.formation.cluster.String(), "slot", n.formation.slot)
	return nil
}

// refusedPeer logs a connection that was refused. Strangers are no news; a member that is refused is.
func (n *Node) refusedPeer(from net.Addr, p preface, err error) {
	level := slog.LevelDebug
	if errors.Is(err, ErrStartsFell) {
		level = slog.LevelWarn
	} else if errors.Is(err, ErrPeerToken) {
		level = slog.LevelInfo
	}
	if errors.Is(err, io.EOF) {
		err = io.EOF
	}
	n.log.Log(context.Background(), level, "peer refused", "from", from, "incarnation", p.own.String(), "error", err)
}

// Stop ends the node: Raft, its connections and its goroutines. When ctx ends first it returns that error, and what
// hangs is left to the end of the process. The Machine is not called after Stop has returned nil.
func (n *Node) Stop(ctx context.Context) error {
	ended := make(chan struct{})
	go func() { // ends when all has ended, or with the process
		defer close(ended)
		n.stopped.Do(n.shutdown)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *Node) shutdown() {
	// With n.mu held nothing can start Raft after this.
	n.mu.Lock()
	n.formation.closed = true
	n.mu.Unlock()
	c := n.consensus.Load()
	if c != nil {
		c.back.release(true)
		f := c.raft.Shutdown()
		c.trans.Close()
		c.trans.CloseStreams()
		n.port.cut()
		// Already shut down (removed, for one) is an end as well.
		_ = f.Error()
	}
	close(n.stop)
	n.port.cut()
	n.port.wg.Wait()
	n.done.Wait()
	if c != nil {
		if err := c.stores.close(); err != nil {
			n.log.Warn("closing the log", "error", err)
		}
	}
	n.closeDir(nil)
}

// Transfer hands leadership over; a node that does not lead has nothing to do. A leader whose transfer fails does not
// go on refusing everything (hashicorp/raft#696): it leaves the cluster, so that the others elect one, and the process
// should end.
func (n *Node) Transfer(ctx context.Context) error {
	c := n.consensus.Load()
	if c == nil || c.raft.State() != raft.Leader {
		return nil
	}
	result := make(chan error, 1)
	// Ends when Raft resolves the transfer, or shuts down.
	go func() { result <- n.await(c.raft.LeadershipTransfer()) }()
	var err error
	select {
	case err = <-result:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil && c.raft.State() == raft.Leader {
		err = fmt.Errorf("handing leadership over: %w", err)
		n.leave(err)
		return err
	}
	return nil
}
