package raftglue

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// answer answers a question of a peer or of the command line, both of whom know the peer token.
func (n *Node) answer(q *question) *reply {
	switch q.Op {
	case opHello:
		return &reply{Hello: n.hello()}
	case opPromise:
		return n.answerPromise(q)
	case opWithdraw:
		return n.answerWithdraw(q)
	case opJoin:
		return n.answerJoin(q)
	case opPing:
		c := n.consensus.Load()
		if c == nil {
			return &reply{Error: "part of no cluster", Retry: true}
		}
		return &reply{Applied: c.raft.AppliedIndex()}
	case opSettled:
		c, no := n.leading()
		if no != nil {
			return no
		}
		cfg := c.configuration()
		if !n.settled(c, cfg) {
			return &reply{}
		}
		return &reply{Settled: fingerprint(cfg)}
	case opIsMember:
		return n.answerIsMember(q)
	case opInit:
		return n.answerInit(q)
	case opAbandon:
		return errorReply(n.abandon())
	case opMembers:
		s := n.Status()
		return &reply{Status: &s, Leader: n.leaderPeer()}
	case opReplace:
		return n.answerReplace(q)
	case opRemove:
		return n.answerRemove(q)
	}
	return &reply{Error: fmt.Sprintf("unknown question %q: is that the same version?", q.Op)}
}

func errorReply(err error) *reply {
	if err != nil {
		return &reply{Error: err.Error()}
	}
	return &reply{}
}

func (n *Node) hello() *hello {
	leader := n.leaderPeer()
	n.mu.Lock()
	defer n.mu.Unlock()
	f := &n.formation
	h := &hello{
		Inc: f.inc, Slot: f.slot, Self: n.cfg.Self, Members: f.members, MaxLease: uint64(n.cfg.MaxLease),
		Formed: f.formed, Cluster: f.cluster, Leader: leader, HasLeader: leader != "", Durable: n.dir != nil,
	}
	if f.promised != nil {
		h.Promised, h.Cluster, h.By = true, f.promised.Cluster, f.promised.By
	}
	return h
}

// leaderPeer is the peer address of the leader that this node knows; empty: none.
func (n *Node) leaderPeer() string {
	c := n.consensus.Load()
	if c == nil {
		return ""
	}
	address, _ := c.raft.LeaderWithID()
	peer, _, err := parseRaftAddress(address)
	if err != nil {
		return ""
	}
	return peer
}

// leading returns this node's consensus if it leads, else the answer that says who does.
func (n *Node) leading() (*consensus, *reply) {
	c := n.consensus.Load()
	if c == nil {
		return nil, &reply{Error: "this node is part of no cluster: " + adviceInit}
	}
	if c.raft.State() != raft.Leader {
		leader := n.leaderPeer()
		if leader == "" {
			return nil, &reply{Error: "this node knows no leader", Retry: true}
		}
		return nil, &reply{Error: "this node does not lead", Retry: true, Leader: leader}
	}
	return c, nil
}

const adviceInit = "run `ticketing init` once, when all members are up"

func (n *Node) answerPromise(q *question) *reply {
	n.mu.Lock()
	defer n.mu.Unlock()
	if q.Promise == nil {
		return &reply{Error: "no promise named"}
	}
	before := n.formation.promised
	if err := n.formation.promise(q.Promise); err != nil {
		return errorReply(err)
	}
	if err := n.persist(); err != nil {
		n.formation.promised = before
		return errorReply(err)
	}
	return &reply{}
}

func (n *Node) answerWithdraw(q *question) *reply {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.formation.withdraw(q.Cluster) {
		return errorReply(errFormed)
	}
	return errorReply(n.persist())
}

func (n *Node) answerIsMember(q *question) *reply {
	c, no := n.leading()
	if no != nil {
		return no
	}
	// A leader that is deposed without knowing it must not tell a member that it is none.
	if err := n.await(c.raft.Barrier(n.peerTimeout())); err != nil {
		return &reply{Error: err.Error(), Retry: true}
	}
	for _, m := range c.table() {
		if m.Inc == q.Inc {
			return &reply{Yes: true}
		}
	}
	return &reply{}
}

func (n *Node) answerInit(q *question) *reply {
	var grace *time.Duration
	if q.Grace != nil {
		if *q.Grace > maxGraceSeconds {
			return &reply{Error: fmt.Sprintf("grace of %d s: at most %d", *q.Grace, maxGraceSeconds)}
		}
		d := time.Duration(*q.Grace) * time.Second
		grace = &d
	}
	cluster, err := n.form(q.FirstToken, grace)
	if err != nil {
		return errorReply(err)
	}
	return &reply{Cluster: cluster, Terms: n.now.Load().terms}
}

// maxGraceSeconds is a day: no listener admits a longer lease.
const maxGraceSeconds = 86400

// table is the members as Raft's latest configuration has them.
func (c *consensus) table() (t []member) {
	cfg := c.configuration()
	for _, s := range cfg.Servers {
		if m, err := parseMember(s); err == nil {
			t = append(t, m)
		}
	}
	return t
}

// answerReplace gives a slot to another client address, and waits until who asks from there is a voter.
func (n *Node) answerReplace(q *question) *reply {
	c, no := n.leading()
	if no != nil {
		return no
	}
	size := n.now.Load().size
	if q.Slot < 0 || q.Slot >= size {
		return &reply{Error: fmt.Sprintf("slot %d: allowed are 0..%d", q.Slot, size-1)}
	}
	if _, err := PeerAddress(q.Address, n.cfg.PeerPortOffset); err != nil {
		return &reply{Error: err.Error()}
	}
	for _, m := range c.table() {
		if m.Client == q.Address && m.Slot != q.Slot {
			return &reply{Error: fmt.Sprintf("%s has slot %d already", q.Address, m.Slot)}
		}
		if m.Slot == q.Slot && m.id() == n.raftID() && m.Client != q.Address {
			// A leader does not remove itself: its successor does.
			if err := n.handOver(c); err != nil {
				return &reply{Error: err.Error()}
			}
			return &reply{Error: "leadership is handed over first; ask again", Retry: true}
		}
	}
	n.gate.mu.Lock()
	n.gate.replacing[q.Slot] = q.Address
	n.gate.mu.Unlock()
	n.wakeGate()
	defer func() {
		n.gate.mu.Lock()
		defer n.gate.mu.Unlock()
		if n.gate.replacing[q.Slot] == q.Address {
			delete(n.gate.replacing, q.Slot)
		}
	}()
	done := func() bool { return c.onlyVoter(q.Slot, q.Address) && n.gate.isSettled(c) }
	if !n.waitLeading(c, done) {
		return &reply{Error: fmt.Sprintf("%s is not yet a voter in slot %d: start a node there whose CLUSTER names it in that "+
			"slot, and ask again (ticketing members shows how far it is)", q.Address, q.Slot), Retry: !c.leading.Load()}
	}
	return &reply{}
}

func (g *gate) isSettled(c *consensus) bool {
	return g.settled.Load() == fingerprint(c.configuration())
}

func (c *consensus) onlyVoter(slot int, client string) bool {
	cfg := c.configuration()
	found := false
	for _, s := range cfg.Servers {
		m, err := parseMember(s)
		if err != nil || m.Slot != slot {
			continue
		}
		if m.Client != client || s.Suffrage != raft.Voter {
			return false
		}
		found = true
	}
	return found
}

// waitLeading waits until done or, in vain, until this node leads no longer or adminTimeout is nearly over.
func (n *Node) waitLeading(c *consensus, done func() bool) bool {
	end := time.Now().Add(adminTimeout - 2*time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(end) && c.raft.State() == raft.Leader {
		if done() {
			return true
		}
		select {
		case <-tick.C:
		case <-n.stop:
			return false
		}
	}
	return false
}

// handOver transfers leadership on a leader that goes on as a member.
func (n *Node) handOver(c *consensus) error {
	err := n.await(c.raft.LeadershipTransfer())
	if err == nil || c.raft.State() != raft.Leader {
		return nil
	}
	// A transfer that hangs refuses everything for good (hashicorp/raft#696); a barrier tells.
	if b := n.await(c.raft.Barrier(4 * n.cfg.Election)); b == raft.ErrLeadershipTransferInProgress {
		n.fail(fmt.Errorf("a transfer of leadership hangs: %w", err))
	}
	return fmt.Errorf("handing leadership over: %w", err)
}

// answerRemove takes a slot's member out of the cluster.
func (n *Node) answerRemove(q *question) *reply {
	c, no := n.leading()
	if no != nil {
		return no
	}
	n.gate.changing.Lock()
	defer n.gate.changing.Unlock()
	v, err := n.probe(c)
	if err != nil || !v.settled() {
		return &reply{Error: "a change of members is pending: ask again", Retry: true}
	}
	found := false
	for _, s := range v.seats {
		if s.Slot != q.Slot {
			continue
		}
		found = true
		if s.id() == v.self {
			if err := n.handOver(c); err != nil {
				return &reply{Error: err.Error()}
			}
			return &reply{Error: "leadership is handed over first; ask again", Retry: true}
		}
		if s.voter && !v.mayRemove(s.id()) {
			return &reply{Error: fmt.Sprintf("without slot %d only %d voters would live, of %d members: too few to go on; "+
				"bring another back first", q.Slot, v.liveVoters(s.id()), v.size)}
		}
		if err := n.change(c, change{kind: removeMember, id: s.id()}); err != nil {
			return &reply{Error: err.Error(), Retry: true}
		}
	}
	if !found {
		return &reply{Error: fmt.Sprintf("nobody is in slot %d", q.Slot)}
	}
	return &reply{}
}

// seenStarts remembers the newest start of each incarnation that this node has met, so that one whose start count falls
// is refused: its directory was restored from a backup, and has forgotten votes.
type seenStarts struct {
	mu   sync.Mutex
	last map[Incarnation]start
	save func(map[Incarnation]start) error // nil: in memory only
}

func (s *seenStarts) check(inc Incarnation, at start) bool {
	if at.Count == 0 { // in memory: this incarnation has no other start
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.last[inc]
	switch {
	case ok && (at.Count < last.Count || at.Count == last.Count && at.Boot != last.Boot):
		return false
	case ok && at == last:
		return true
	}
	s.last[inc] = at
	return s.save == nil || s.save(s.last) == nil
}
