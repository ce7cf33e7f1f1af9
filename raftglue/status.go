package raftglue

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ticketing-go/ticketing/locktable"
)

// Status is what a node knows of itself and its cluster; it may be stale, as everything that a node says without the
// log. Liveness and lag of members are the leader's, and absent on others.
type Status struct {
	Formed       bool      `json:"formed"`
	Cluster      ClusterID `json:"cluster"`
	Node         string    `json:"node"`
	Slot         int       `json:"slot"`
	Incarnation  string    `json:"incarnation"`
	Starts       uint64    `json:"starts"` // of this incarnation, with a data directory
	Durable      bool      `json:"durable"`
	Role         string    `json:"role"` // leader, candidate, follower, learner, unformed, removed, stopped
	Term         uint64    `json:"term"`
	LeaderSlot   int       `json:"leader_slot"` // -1: none known
	LeaderAt     string    `json:"leader"`      // Config.Addresses of the leader
	Size         int       `json:"size"`        // members of the cluster as it was formed
	Members      []Member  `json:"members"`
	CommitIndex  uint64    `json:"commit_index"`
	AppliedIndex uint64    `json:"applied_index"`
	LastIndex    uint64    `json:"last_index"`
	// ChangePending: the latest change of members is not known to have been applied by all live voters, or a learner is
	// on its way.
	ChangePending bool `json:"change_pending"`
	// SinceContact is how long ago this node heard from the leader, as leader: how long ago what a majority has
	// acknowledged was sent. Negative: never.
	SinceContact    time.Duration `json:"since_contact_ns"`
	Elections       uint64        `json:"elections_won"`
	RecordsInFlight int           `json:"records_in_flight"` // proposed here, and not resolved
	LogEntries      int           `json:"log_entries"`
	LogBytes        int           `json:"log_bytes"`
	SnapshotIndex   uint64        `json:"snapshot_index"`  // 0: none
	SnapshotAge     time.Duration `json:"snapshot_age_ns"` // of the newest kept here; negative: none
	Ready           bool          `json:"ready"`
	Reason          string        `json:"reason"` // why not ready
	// Commits is how long records proposed here took until they were committed and applied.
	Commits locktable.Histogram `json:"-"`
}

// Member is one seat of the table of members.
type Member struct {
	Slot        int    `json:"slot"`
	Client      string `json:"client"`
	Peer        string `json:"peer"`
	Incarnation string `json:"incarnation"`
	State       string `json:"state"` // voter or learner
	Leader      bool   `json:"leader"`
	Self        bool   `json:"self"`
	Seen        bool   `json:"seen"` // the leader has looked; only then the rest counts
	Live        bool   `json:"live"`
	Applied     uint64 `json:"applied_index"`
	Lag         uint64 `json:"lag_entries"` // behind the leader's commit index
	// SinceAnswer is how long ago the member answered this leader last. Negative: never.
	SinceAnswer time.Duration `json:"since_answer_ns"`
}

// Status looks at everything at once; some microseconds.
func (n *Node) Status() Status {
	i := n.now.Load()
	s := Status{
		Formed: i.formed, Cluster: i.cluster, Node: n.cfg.NodeName, Slot: i.slot, Incarnation: n.inc.String(),
		Starts: n.start.Count, Durable: n.dir != nil, Role: "unformed", LeaderSlot: -1, Size: i.size, SinceContact: -1,
		SnapshotAge: -1,
	}
	s.Ready, s.Reason = n.Ready()
	c := n.consensus.Load()
	if c == nil {
		return s
	}
	cfg := c.configuration()
	leading := c.leading.Load()
	role := n.roleNow(c, leading)
	s.Term = role.Term
	s.ChangePending = !n.settled(c, cfg)
	if role.Leader.Known {
		s.LeaderSlot, s.LeaderAt = role.Leader.Slot, role.Leader.Addresses
	}
	s.CommitIndex, s.AppliedIndex, s.LastIndex = c.raft.CommitIndex(), c.raft.AppliedIndex(), c.raft.LastIndex()
	s.Elections, s.RecordsInFlight = c.elections.Load(), int(c.unresolved.Load())
	s.LogEntries, s.LogBytes = c.stores.size()
	if list, err := c.stores.snapshots.List(); err == nil && len(list) > 0 {
		s.SnapshotIndex = list[0].Index
		if at, ok := snapshotTime(list[0].ID); ok {
			s.SnapshotAge = time.Since(at)
		}
	}
	s.Commits = c.commits.histogram()
	if leading {
		if at := c.heard.majority.Load(); at != 0 {
			s.SinceContact = time.Since(c.heard.base) - time.Duration(at)
		}
	} else if last := c.raft.LastContact(); !last.IsZero() {
		s.SinceContact = time.Since(last)
	}
	s.Role = n.roleName(c, leading)
	s.Members = n.members(c, cfg, leading, s.CommitIndex)
	return s
}

// snapshotTime reads when a snapshot was begun from its id: term, index and milliseconds, as hashicorp/raft's store on
// disk names them, and memSnapshots alike.
func snapshotTime(id string) (time.Time, bool) {
	_, rest, _ := strings.Cut(id, "-")
	_, last, ok := strings.Cut(rest, "-")
	ms, err := strconv.ParseInt(last, 10, 64)
	return time.UnixMilli(ms), ok && err == nil
}

func (n *Node) roleName(c *consensus, leading bool) string {
	seat, in := c.seat(n.raftID())
	switch {
	case c.removed.Load():
		return "removed"
	case c.raft.State() == raft.Shutdown:
		return "stopped"
	case leading:
		return "leader"
	case !in || seat.Suffrage != raft.Voter:
		return "learner"
	case c.raft.State() == raft.Candidate:
		return "candidate"
	}
	return "follower"
}

func (n *Node) members(c *consensus, cfg raft.Configuration, leading bool, commit uint64) (out []Member) {
	_, leader := c.raft.LeaderWithID()
	n.gate.mu.Lock()
	defer n.gate.mu.Unlock()
	for slot := range maxSlots {
		for _, s := range cfg.Servers {
			m, err := parseMember(s)
			if err != nil || m.Slot != slot {
				continue
			}
			e := Member{
				Slot: m.Slot, Client: m.Client, Peer: m.Peer, Incarnation: m.Inc.String(), State: "voter",
				Leader: s.ID == leader, Self: m.Inc == n.inc,
			}
			if s.Suffrage != raft.Voter {
				e.State = "learner"
			}
			if si, ok := n.gate.sights[s.ID]; ok && leading {
				e.Seen, e.Live, e.Applied, e.SinceAnswer = true, si.live, si.applied, -1
				if !si.answered.IsZero() {
					e.SinceAnswer = time.Since(si.answered)
				}
				if commit > si.applied {
					e.Lag = commit - si.applied
				}
			}
			out = append(out, e)
		}
	}
	return out
}

// String is the table of members, for a person.
func (s *Status) String() string {
	if !s.Formed {
		return "not ready: " + s.Reason + "\n"
	}
	out := fmt.Sprintf("cluster %s, term %d, commit %d\n", s.Cluster, s.Term, s.CommitIndex)
	out += fmt.Sprintf("%-4s  %-24s  %-7s  %-6s  %-5s  %8s  %s\n", "slot", "client address", "state", "leads", "live", "lag",
		"incarnation")
	for _, m := range s.Members {
		live, lag := "?", "?"
		if m.Seen {
			live, lag = yesNo(m.Live), fmt.Sprint(m.Lag)
		}
		out += fmt.Sprintf("%-4d  %-24s  %-7s  %-6s  %-5s  %8s  %s\n", m.Slot, m.Client, m.State, yesNo(m.Leader), live, lag,
			m.Incarnation)
	}
	if !s.Ready {
		out += "not ready: " + s.Reason + "\n"
	}
	return out
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
