package raftglue

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Terms are what forming fixes for the life of a cluster.
type Terms struct {
	// FirstToken is the first token to be issued; 1 unless `init --first-token` said otherwise.
	FirstToken uint64 `json:"first_token"`
	// Grace is how long the first leader waits before its first grant; 0 unless --first-token or --grace was given.
	Grace time.Duration `json:"grace_ns"`
}

// promise names one cluster that is to be formed, and everybody who is to form it. A node that has made it helps to form
// no other, until it is withdrawn.
type promise struct {
	Cluster ClusterID `json:"cluster"`
	By      int       `json:"by"` // slot of the coordinator, which alone may form the cluster
	Members []string  `json:"members"`
	Incs    []Incarnation
	Terms   Terms `json:"terms"`
}

// formation is what a node knows of the cluster it belongs to, and the rules of forming one, as plain state: no
// goroutine, no clock, no network. A cluster is formed by its coordinator alone, at one moment (begin), and only after
// all members, in their present lives, have promised it. Since a node keeps one promise at a time, refuses to promise
// while it is part of a cluster, and a coordinator begins only while its own promise stands, two clusters cannot both
// begin: the later would need the promise of the earlier's coordinator, who is formed.
type formation struct {
	inc     Incarnation
	slot    int // in members; after a join the slot that the table gives
	members []string

	promised  *promise
	formed    bool
	cluster   ClusterID // formed
	size      int       // number of members of the cluster; formed
	terms     Terms     // formed
	withdrawn []ClusterID
	closed    bool // the node stops: it becomes part of nothing any more
}

var (
	errFormed       = errors.New("this node is part of a cluster already")
	errPromised     = errors.New("this node has promised another cluster; `ticketing init --abandon` clears that where no node is formed")
	errOtherLife    = errors.New("this node has started anew since")
	errOtherMembers = errors.New("this node has another list of members")
	errWithdrawn    = errors.New("that cluster has been withdrawn")
	errStopping     = errors.New("this node is stopping")
	errSilent       = errors.New("does not answer")
	errNoPromise    = errors.New("the promise of this cluster has been withdrawn")
)

func (f *formation) promise(p *promise) error {
	switch {
	case f.closed:
		return errStopping
	case f.formed:
		return errFormed
	case !slices.Equal(p.Members, f.members) || len(p.Incs) != len(f.members):
		return errOtherMembers
	case p.Incs[f.slot] != f.inc:
		return errOtherLife
	case slices.Contains(f.withdrawn, p.Cluster):
		return errWithdrawn
	case f.promised != nil && f.promised.Cluster != p.Cluster:
		return errPromised
	}
	f.promised = p
	return nil
}

// withdraw takes a promise back and makes sure that one for that cluster which is still under way is refused. Cluster 0
// withdraws whatever is promised. It says whether this node is part of a cluster, which nothing withdraws.
func (f *formation) withdraw(c ClusterID) (formed bool) {
	if f.formed {
		return true
	}
	if c == (ClusterID{}) && f.promised != nil {
		c = f.promised.Cluster
	}
	if c == (ClusterID{}) {
		return false
	}
	if f.promised != nil && f.promised.Cluster == c {
		f.promised = nil
	}
	if len(f.withdrawn) == maxWithdrawn {
		f.withdrawn = f.withdrawn[1:]
	}
	f.withdrawn = append(f.withdrawn, c)
	return false
}

// begin is the moment at which a cluster comes to be: called on its coordinator, when all members have promised.
func (f *formation) begin(c ClusterID) error {
	if f.closed {
		return errStopping
	}
	if f.formed {
		return errFormed
	}
	if f.promised == nil || f.promised.Cluster != c || f.promised.By != f.slot {
		return errNoPromise
	}
	f.become(c, len(f.promised.Members), f.promised.Terms)
	return nil
}

// contacted is called when a member of cluster c opens a connection for Raft to this incarnation: the coordinator has
// begun. It says whether this node belongs to c, from now on if not before.
func (f *formation) contacted(c ClusterID) bool {
	if !f.closed && !f.formed && f.promised != nil && f.promised.Cluster == c {
		f.become(c, len(f.promised.Members), f.promised.Terms)
	}
	return f.formed && f.cluster == c
}

// join makes this node part of a cluster whose leader takes it in. Whoever has promised a cluster joins no other.
func (f *formation) join(c ClusterID, slot, size int, terms Terms) error {
	if f.closed {
		return errStopping
	}
	if f.formed && f.cluster != c {
		return errFormed
	}
	if f.promised != nil && f.promised.Cluster != c {
		return errPromised
	}
	f.slot = slot
	f.become(c, size, terms)
	return nil
}

func (f *formation) become(c ClusterID, size int, terms Terms) {
	f.formed, f.cluster, f.size, f.terms, f.promised = true, c, size, terms, nil
}

// stopAll is how nodes forget the cluster that they are part of.
func stopAll(durable bool) string {
	if durable {
		return "stop all nodes and move their data directories away"
	}
	return "stop all nodes"
}

// plan is what a coordinator concludes from the members' answers, in slot order: the promise to ask all of them for, or
// the one line that tells the operator why not. firstToken 0: none was named.
func (f *formation) plan(hellos []*hello, firstToken uint64, grace *time.Duration) (*promise, error) {
	p := &promise{Cluster: newClusterID(), By: f.slot, Members: f.members, Terms: Terms{FirstToken: max(firstToken, 1)}}
	var longest time.Duration
	for slot, h := range hellos {
		who := f.members[slot]
		switch {
		case h == nil:
			return nil, fmt.Errorf("%s %w: start all members, then try again", who, errSilent)
		case h.Formed:
			err := fmt.Errorf("%s is part of cluster %s", who, h.Cluster)
			if slot == f.slot {
				err = errFormed
			}
			return nil, fmt.Errorf("%w: nodes without one join it by themselves; to form another, %s first", err,
				stopAll(h.Durable))
		case !slices.Equal(h.Members, f.members):
			return nil, fmt.Errorf("%s has another list of members: give all nodes the same CLUSTER, in the same order", who)
		case h.Slot != slot:
			return nil, fmt.Errorf("the node at %s says that it is %s: check ADVERTISE", who, h.Self)
		case h.Promised:
			return nil, fmt.Errorf("%s has promised another cluster: try again, or clear it with `ticketing init --abandon`", who)
		}
		p.Incs = append(p.Incs, h.Inc)
		longest = max(longest, time.Duration(h.MaxLease))
	}
	for i, inc := range p.Incs {
		if slices.Contains(p.Incs[:i], inc) {
			return nil, fmt.Errorf("%s and another member are one process", f.members[i])
		}
	}
	if firstToken > 0 {
		p.Terms.Grace = longest
	}
	if grace != nil {
		p.Terms.Grace = *grace
	}
	return p, nil
}
