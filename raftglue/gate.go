package raftglue

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// gate is the leader's part of membership: who asks to be taken in, and one change at a time.
type gate struct {
	mu        sync.Mutex
	joiners   map[int]joiner // by slot
	replacing map[int]string // slot: client address of who shall have it, as the operator said
	sights    map[raft.ServerID]sight
	probed    time.Time
	changing  sync.Mutex    // held round a change of members
	wake      chan struct{} // one slot
	// print is the configuration last known to be committed, index a commit index at or behind it; both the gate's,
	// while changing is held. 0: not known.
	print, index uint64
	// settled is the configuration that every live voter has applied, with no learner in it; 0: none in this term.
	settled atomic.Uint64
}

type joiner struct {
	member
	asked time.Time
}

// sight is what the leader knows of a member's life.
type sight struct {
	answered time.Time // when it last answered
	since    time.Time // when it was first looked for
	live     bool      // answered when asked last
	applied  uint64
	caughtUp bool
}

func (g *gate) init() {
	g.joiners, g.replacing = map[int]joiner{}, map[int]string{}
	g.sights, g.wake = map[raft.ServerID]sight{}, make(chan struct{}, 1)
}

func (n *Node) wakeGate() {
	select {
	case n.gate.wake <- struct{}{}:
	default:
	}
}

// joinerStays is how long a joiner counts that has stopped asking; it asks at least every half election timeout.
func (n *Node) joinerStays() time.Duration { return max(10*n.cfg.Election, 2*time.Second) }

// goneAfter is how long a voter must be silent to hold up no further change of members. Far more than the moment that
// makes it not live: one who only stumbles must not be passed over, for it would know a configuration too old.
func (n *Node) goneAfter() time.Duration { return max(10*n.cfg.Election, 2*time.Second) }

// runGate makes, while this node leads, the changes of members that are due; Node.Stop ends it.
func (n *Node) runGate(c *consensus) {
	defer n.done.Done()
	tick := time.NewTicker(max(n.cfg.Election/4, 5*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-n.gate.wake:
		case <-tick.C:
		case <-n.stop:
			return
		}
		if !c.leading.Load() {
			n.gate.lost()
			continue
		}
		n.gateStep(c)
	}
}

// lost forgets what is known only while this node leads: a voter that was heard last in an earlier term has not been
// silent since, only not been asked.
func (g *gate) lost() {
	g.changing.Lock()
	defer g.changing.Unlock()
	g.settled.Store(0)
	g.print = 0
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.sights)
}

// gateStep looks at the members, if there is a reason to, and makes at most one change.
func (n *Node) gateStep(c *consensus) {
	g := &n.gate
	g.changing.Lock()
	defer g.changing.Unlock()
	g.mu.Lock()
	for slot, j := range g.joiners {
		if time.Since(j.asked) > n.joinerStays() {
			delete(g.joiners, slot)
		}
	}
	idle := len(g.joiners) == 0 && len(g.replacing) == 0 && g.isSettled(c) && time.Since(g.probed) < time.Second
	g.mu.Unlock()
	if idle {
		return
	}
	v, err := n.probe(c)
	if err != nil {
		return
	}
	if v.settled() && !v.learners() {
		g.settled.Store(g.print)
	}
	ch := nextChange(v)
	if ch.kind == noChange {
		return
	}
	if err := n.change(c, ch); err != nil {
		n.log.Debug("change of members", "change", ch.kind.String(), "member", string(ch.id), "error", err)
		return
	}
	n.log.Info("change of members", "change", ch.kind.String(), "member", string(ch.id))
	n.wakeGate()
}

func (n *Node) change(c *consensus, ch change) error {
	timeout := max(5*n.cfg.Election, time.Second)
	var f raft.IndexFuture
	switch ch.kind {
	case addLearner:
		// Learner is Nonvoter to hashicorp/raft.
		f = c.raft.AddNonvoter(ch.id, ch.address, 0, timeout)
	case removeMember:
		f = c.raft.RemoveServer(ch.id, 0, timeout)
	case promote:
		f = c.raft.AddVoter(ch.id, ch.address, 0, timeout)
	default:
		return errNoChange
	}
	err := n.await(f)
	c.back.release(false)
	return err
}

var errNoChange = errors.New("raftglue: no such change of members")

// committed makes sure that the latest configuration is committed, and returns it with a commit index at or behind it.
// g.changing is held.
func (n *Node) committed(c *consensus) (raft.Configuration, uint64, error) {
	g := &n.gate
	cfg := c.configuration()
	if p := fingerprint(cfg); p != g.print {
		if err := n.await(c.raft.Barrier(n.peerTimeout())); err != nil {
			return cfg, 0, err
		}
		if again := c.configuration(); fingerprint(again) != p {
			return again, 0, errChanging
		}
		g.print, g.index = p, c.raft.CommitIndex()
	}
	return cfg, g.index, nil
}

var errChanging = errors.New("raftglue: a change of members is under way")

// probe asks all members what they have applied, and returns the view on which the next change is decided. g.changing
// is held.
func (n *Node) probe(c *consensus) (*view, error) {
	cfg, index, err := n.committed(c)
	if err != nil {
		return nil, err
	}
	round, commit := time.Now(), c.raft.CommitIndex()
	self := n.raftID()
	type answer struct {
		id raft.ServerID
		r  *reply
	}
	answers := make([]answer, len(cfg.Servers))
	var wg sync.WaitGroup
	for i, s := range cfg.Servers {
		answers[i].id = s.ID
		m, err := parseMember(s)
		if err != nil || s.ID == self {
			continue
		}
		wg.Go(func() { // ends with its question
			answers[i].r, _ = n.ask(m.Peer, m.Inc, &question{Op: opPing}, n.cfg.Election)
		})
	}
	wg.Wait()
	g := &n.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for _, a := range answers {
		s := g.sights[a.id]
		if s.since.IsZero() {
			s.since = round
		}
		s.live = a.id == self
		if s.live {
			s.applied = c.raft.AppliedIndex()
		} else if a.r != nil {
			s.live, s.applied = true, a.r.Applied
			s.caughtUp = a.r.Applied >= commit && now.Sub(round) < caughtUpWithin
		}
		if s.live {
			s.answered = now
		}
		was, seen := g.sights[a.id]
		if seen && was.live != s.live || !seen && !s.live {
			n.log.Info("member", "member", string(a.id), "answers", s.live)
		}
		g.sights[a.id] = s
	}
	for id := range g.sights {
		if !slices.ContainsFunc(cfg.Servers, func(s raft.Server) bool { return s.ID == id }) {
			delete(g.sights, id)
		}
	}
	g.probed = now
	return n.view(cfg, index, now), nil
}

// view puts together what is known; g.mu is held.
func (n *Node) view(cfg raft.Configuration, index uint64, now time.Time) *view {
	g := &n.gate
	v := &view{size: n.now.Load().size, self: n.raftID(), index: index}
	for _, s := range cfg.Servers {
		m, err := parseMember(s)
		if err != nil {
			continue
		}
		si := g.sights[s.ID]
		st := seat{
			member: m, voter: s.Suffrage == raft.Voter, live: si.live, applied: si.applied, caughtUp: si.caughtUp,
			gone: !si.live && now.Sub(later(si.answered, si.since)) > n.goneAfter(),
		}
		if j, ok := g.joiners[m.Slot]; ok && j.Inc != m.Inc && j.Peer == m.Peer && s.ID != v.self {
			// Another life answers at this very address: this one is over.
			st.live, st.gone = false, true
		}
		if j, ok := g.joiners[m.Slot]; ok && j.Inc == m.Inc && st.voter {
			// It is in. What it asked before must not bring it back when it has been taken out.
			delete(g.joiners, m.Slot)
		}
		v.seats = append(v.seats, st)
	}
	for slot := range maxSlots {
		if j, ok := g.joiners[slot]; ok {
			v.joiners = append(v.joiners, wanted{j.member, g.replacing[slot] == j.Client && j.Client != ""})
		}
	}
	return v
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// answerJoin registers who wants to be taken in.
func (n *Node) answerJoin(q *question) *reply {
	c, no := n.leading()
	if no != nil {
		return no
	}
	if q.Join == nil {
		return &reply{Error: "join: no member named"}
	}
	j := *q.Join
	id := n.now.Load()
	g := &n.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	table := c.table()
	slot, err := slotFor(table, j, len(q.Members), id.size, g.replacing)
	if err != nil {
		return &reply{Error: err.Error()}
	}
	j.Slot = slot
	if old, ok := g.joiners[slot]; ok && old.Inc != j.Inc && old.Client != j.Client &&
		g.replacing[slot] != j.Client && time.Since(old.asked) < n.joinerStays() {
		return &reply{Error: fmt.Sprintf("%s asks for slot %d as well", old.Client, slot), Retry: true}
	}
	g.joiners[slot] = joiner{j, time.Now()}
	n.wakeGate()
	return &reply{Cluster: id.cluster, Terms: id.terms, Size: id.size, Hello: &hello{Slot: slot}}
}

// slotFor decides which slot a joiner takes: the one of its address in the table, the one that the operator gave to its
// address, or one that nobody has.
func slotFor(table []member, j member, listed, size int, replacing map[int]string) (int, error) {
	for _, m := range table {
		if m.Inc == j.Inc {
			return m.Slot, nil
		}
	}
	for slot, client := range replacing {
		if client == j.Client {
			return slot, nil
		}
	}
	taken := false
	for _, m := range table {
		if m.Client == j.Client && m.Slot != j.Slot {
			return 0, fmt.Errorf("the table of members has %s in slot %d, its own CLUSTER in slot %d: put the list in the "+
				"table's order (ticketing members)", j.Client, m.Slot, j.Slot)
		}
		if m.Client == j.Client {
			return m.Slot, nil
		}
		taken = taken || m.Slot == j.Slot
	}
	if taken || listed != size || j.Slot < 0 || j.Slot >= size {
		return 0, fmt.Errorf("%s is no member: give it a slot with `ticketing members replace SLOT %s`", j.Client, j.Client)
	}
	return j.Slot, nil
}
