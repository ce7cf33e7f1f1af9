package raftglue

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// readiness is why this node is not ready, as its joiner last found.
type readiness struct {
	why     atomic.Pointer[string] // nil: nothing found
	settled atomic.Uint64          // the configuration of which the leader says that all live voters know it
	voted   atomic.Bool            // this incarnation has been a voter
	// leaderless is since when those who are in a cluster have known no leader, seen from outside; the joiner's alone.
	leaderless time.Time
}

// say keeps the reason and logs it when it changes.
func (n *Node) say(why string) {
	if old := n.ready.why.Swap(&why); old == nil || *old != why {
		n.log.Warn("not ready", "reason", why)
	}
}

// runJoin looks after this node's own place in a cluster: it asks to be taken in, forms one where FORM=auto says so,
// finds out whether it was removed, and whether a majority has lost its memory. Node.Stop ends it.
func (n *Node) runJoin() {
	defer n.done.Done()
	tick := time.NewTicker(min(max(n.cfg.Election/2, 10*time.Millisecond), time.Second))
	defer tick.Stop()
	var alone time.Time // since when no leader is known
	var compared uint64 // the configuration that was compared with CLUSTER
	for {
		select {
		case <-tick.C:
		case <-n.stop:
			return
		}
		c := n.consensus.Load()
		if c == nil {
			n.joinFromOutside()
			continue
		}
		if c.removed.Load() {
			continue
		}
		seat, in := c.seat(n.raftID())
		voter := in && seat.Suffrage == raft.Voter
		if voter {
			n.ready.voted.Store(true)
		}
		if p := fingerprint(c.configuration()); p != compared {
			compared = p
			n.compareList(c)
		}
		if leader := n.leaderPeer(); leader != "" {
			alone = time.Time{}
			n.keepPlace(c, leader, voter)
			continue
		}
		if alone.IsZero() {
			alone = time.Now()
		}
		switch {
		case !voter && !n.ready.voted.Load():
			n.joinFromOutside()
		case time.Since(alone) > n.patience():
			n.diagnose(c)
		}
	}
}

// patience is how long a cluster may be without a leader before somebody speaks of a lost majority: a cluster that has
// just been formed, or whose leader has just died, has none either.
func (n *Node) patience() time.Duration { return 10 * n.cfg.Election }

// compareList says where CLUSTER, which is only where a node looks for its cluster, has been overtaken by the table of
// members.
func (n *Node) compareList(c *consensus) {
	if size := n.now.Load().size; size != len(n.cfg.Members) {
		n.log.Warn("CLUSTER differs from the table of members, which counts: bring it up to date before the next start",
			"listed", len(n.cfg.Members), "members", size)
	}
	for _, m := range c.table() {
		if m.Slot >= len(n.cfg.Members) || n.cfg.Members[m.Slot] != m.Client {
			n.log.Warn("CLUSTER differs from the table of members, which counts: bring it up to date before the next start",
				"slot", m.Slot, "table", m.Client)
		}
	}
}

// keepPlace is the joiner's step of a node that knows a leader.
func (n *Node) keepPlace(c *consensus, leader string, voter bool) {
	switch {
	case voter && n.ready.settled.Load() == fingerprint(c.configuration()):
		n.ready.why.Store(nil)
	case voter:
		if c.leading.Load() {
			if now := n.gate.settled.Load(); now != 0 {
				n.ready.settled.Store(now)
			}
			return
		}
		r, err := n.ask(leader, Incarnation{}, &question{Op: opSettled}, n.peerTimeout())
		if err == nil {
			n.ready.settled.Store(r.Settled)
		}
	case n.ready.voted.Load():
		n.askWhetherRemoved(c, leader)
	default:
		n.joinAt(leader)
	}
}

func (n *Node) askWhetherRemoved(c *consensus, leader string) {
	r, err := n.ask(leader, Incarnation{}, &question{Op: opIsMember, Inc: n.inc}, 2*n.peerTimeout())
	if err != nil || r.Yes {
		return
	}
	c.removed.Store(true)
	advice := "start it again to have it ask for its slot anew"
	if n.dir != nil {
		advice = "to come back as a new member, move its data directory away and start it again"
	}
	n.say("this node was removed from the cluster: " + advice)
	c.wake()
	c.raft.Shutdown()
}

// joinFromOutside asks all members for the cluster, and its leader to be taken in.
func (n *Node) joinFromOutside() {
	hellos, stranger := n.helloAll(max(2*n.cfg.Election, 300*time.Millisecond))
	formed := ""
	for i, h := range hellos {
		if h == nil || !h.Formed || h.Inc == n.inc {
			continue
		}
		if h.Leader != "" {
			n.ready.leaderless = time.Time{}
			n.joinAt(h.Leader)
			return
		}
		formed = fmt.Sprintf("%s is part of cluster %s, but knows no leader: this node is taken in when there is one",
			n.cfg.Members[i], h.Cluster)
	}
	if formed != "" {
		if n.ready.leaderless.IsZero() {
			n.ready.leaderless = time.Now()
		}
		if time.Since(n.ready.leaderless) > n.patience() {
			formed += ". If a majority of the members has lost its memory, " + n.adviceNew()
		}
		n.say(formed)
		return
	}
	n.ready.leaderless = time.Time{}
	if n.consensus.Load() != nil {
		return
	}
	n.mu.Lock()
	slot := n.formation.slot
	n.mu.Unlock()
	switch {
	case stranger != nil:
		n.say("part of no cluster: " + stranger.Error())
	case n.cfg.Form == "auto" && slot == 0:
		if err := n.formByItself(hellos); err != nil && !errors.Is(err, errNotAll) {
			n.log.Info("forming a cluster", "error", err)
		}
	case n.cfg.Form == "auto":
		n.say("part of no cluster: waiting for the member in slot 0 to form one, since FORM is auto")
	default:
		n.say("part of no cluster: " + adviceInit)
	}
}

// adviceNew is how an operator goes on after the loss of a majority's memory.
func (n *Node) adviceNew() string {
	explicit := ""
	if n.cfg.Form == "auto" {
		explicit = " with FORM=explicit"
	}
	return stopAll(n.dir != nil) + ", start them again" + explicit + ", and run `ticketing init --first-token N` with N " +
		"above the highest token that the database has seen"
}

// joinAt asks the leader at a peer address to take this node in, and starts Raft when it will.
func (n *Node) joinAt(leader string) {
	self := n.self()
	r, err := n.ask(leader, Incarnation{}, &question{Op: opJoin, Join: &self, Members: n.cfg.Members}, askTimeout)
	var no *Refused
	if errors.As(err, &no) && !no.retry {
		n.say(no.Text)
		return
	}
	if err != nil || r.Hello == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.formation.formed
	if before && n.formation.cluster == r.Cluster && n.formation.slot == r.Hello.Slot {
		return
	}
	if before {
		// Raft runs under an id that names the slot, so neither can change any more.
		n.say(fmt.Sprintf("cluster %s has this address in slot %d: start this node again", r.Cluster, r.Hello.Slot))
		return
	}
	if err := n.formation.join(r.Cluster, r.Hello.Slot, r.Size, r.Terms); err != nil {
		n.say(err.Error())
		return
	}
	// A failure to enter is the node's.
	_ = n.enter(nil)
}

// diagnose finds out why a member that has a vote has known no leader for a while.
func (n *Node) diagnose(c *consensus) {
	lost, voters := 0, 0
	cfg := c.configuration()
	for _, s := range cfg.Servers {
		m, err := parseMember(s)
		if err != nil || s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if m.Inc == n.inc {
			continue
		}
		r, err := n.ask(m.Peer, Incarnation{}, &question{Op: opHello}, max(2*n.cfg.Election, 300*time.Millisecond))
		if err != nil || r.Hello == nil {
			continue
		}
		if r.Hello.Inc != m.Inc {
			lost++
		}
		if r.Hello.Formed && r.Hello.Cluster == n.now.Load().cluster && r.Hello.Leader != "" {
			// Somebody leads, and has not called here: perhaps this node is no member any more.
			n.askWhetherRemoved(c, r.Hello.Leader)
			if c.removed.Load() {
				return
			}
		}
	}
	if voters-lost < majority(voters) {
		n.say(fmt.Sprintf("%d of %d members have lost their memory: this cluster cannot go on, and what it held is unknown. "+
			"To form a new one, %s", lost, voters, n.adviceNew()))
		return
	}
	n.say("no leader: a majority of the members cannot be reached")
}

// settled says whether every live voter is known to have applied a configuration: this leader has seen to it, or an
// earlier one had.
func (n *Node) settled(c *consensus, cfg raft.Configuration) bool {
	p := fingerprint(cfg)
	return n.ready.settled.Load() == p || c.leading.Load() && n.gate.settled.Load() == p
}

// Ready says whether this node is a voter under its own incarnation, knows a leader, and knows of no pending change of
// members; if not, why. A rolling restart that waits for it loses no majority.
func (n *Node) Ready() (bool, string) {
	if err := n.failure.Load(); err != nil {
		return false, (*err).Error()
	}
	why := ""
	if p := n.ready.why.Load(); p != nil {
		why = *p
	}
	or := func(reason string) string {
		if why != "" {
			return why
		}
		return reason
	}
	c := n.consensus.Load()
	if c == nil {
		return false, or("part of no cluster: " + adviceInit)
	}
	if c.removed.Load() {
		return false, or("removed from the cluster")
	}
	cfg := c.configuration()
	learners, voter := 0, false
	for _, s := range cfg.Servers {
		if s.Suffrage != raft.Voter {
			learners++
		} else if s.ID == n.raftID() {
			voter = true
		}
	}
	switch {
	case !voter:
		return false, or("joining: not yet a voter")
	case n.leaderPeer() == "":
		return false, or("no leader known")
	case learners > 0 || !n.settled(c, cfg):
		return false, "a change of members is pending"
	}
	return true, ""
}
