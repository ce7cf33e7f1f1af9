package raftglue

import (
	"time"

	"github.com/hashicorp/raft"
)

// Role is what a node is to its clients.
type Role struct {
	// Leading: this node leads. It serves when the start entry of its stint has been applied (ARCHITECTURE.md, rules of the log, 4).
	Leading bool
	// Active: this node has a vote under its own incarnation. One that is not answers clients with not_active.
	Active bool
	Term   uint64 // as of about now
	Leader LeaderInfo
}

// LeaderInfo says who leads.
type LeaderInfo struct {
	Known     bool
	Slot      int
	Addresses string // Config.Addresses of the leader
}

// watchRole tells the Machine every change of role, in order; Node.Stop ends it. Raft waits for it at each gain and
// loss of leadership (notify is unbuffered), so that none is missed.
func (n *Node) watchRole(c *consensus) {
	defer n.done.Done()
	observed := make(chan raft.Observation, 16) // only a wake-up: Raft drops what does not fit
	o := raft.NewObserver(observed, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	c.raft.RegisterObserver(o)
	defer c.raft.DeregisterObserver(o)
	tick := time.NewTicker(max(n.cfg.Election/2, time.Millisecond))
	defer tick.Stop()

	leading := false
	var told Role
	tell := func(r Role) {
		if r != told {
			told = r
			n.cfg.Machine.Role(r)
		}
	}
	for {
		select {
		case leading = <-c.notify:
			c.leading.Store(leading)
			if leading {
				c.elections.Add(1)
				n.log.Info("this node leads", "term", c.raft.CurrentTerm())
				n.wakeGate()
			} else {
				c.back.release(false)
				n.log.Info("this node leads no longer", "term", c.raft.CurrentTerm())
			}
			// A loss is told at once, though Raft may know the next leader a moment later.
			tell(n.roleNow(c, leading))
		case <-observed:
			tell(n.roleNow(c, leading))
		case <-c.changed:
			tell(n.roleNow(c, leading))
		case <-tick.C:
			if leading && c.raft.State() == raft.Shutdown { // Raft tells no loss while it shuts down
				leading = false
				c.leading.Store(false)
			}
			if !leading { // who replicated for the last leadership may have come to wait after its end
				c.back.release(false)
			}
			tell(n.roleNow(c, leading))
		case <-n.stop:
			tell(Role{Term: told.Term})
			return
		}
	}
}

func (n *Node) roleNow(c *consensus, leading bool) Role {
	r := Role{Leading: leading, Term: c.raft.CurrentTerm()}
	self, ok := c.seat(n.raftID())
	r.Active = leading || ok && self.Suffrage == raft.Voter && !c.removed.Load()
	if leading {
		r.Leader = LeaderInfo{true, n.slotNow(), n.cfg.Addresses}
		return r
	}
	_, id := c.raft.LeaderWithID()
	if id == "" || id == n.raftID() {
		return r
	}
	m, err := parseMember(raft.Server{ID: id, Address: raftAddress("", Incarnation{})})
	if err != nil {
		return r
	}
	r.Leader.Addresses, r.Leader.Known = n.addressesOf(m.Inc)
	r.Leader.Slot = m.Slot
	return r
}
