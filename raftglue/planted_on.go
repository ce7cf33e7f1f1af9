//go:build planted

package raftglue

// EmptyVote is the fault of this package that can be planted: an empty process on the address of a dead voter takes
// connections meant for that one, though it promised nothing, and so votes as it.
const EmptyVote = "empty-vote"

var plantedFault string

// Plant chooses the fault of a build with the tag planted, by its name, and says whether there is one of that name. Call it
// before Start.
func Plant(name string) bool {
	if name != EmptyVote {
		return false
	}
	plantedFault = name
	return true
}

func (c *Config) plant() {
	if plantedFault == EmptyVote && c.judge == nil {
		c.judge = judgeNobody
	}
}

// judgeNobody is judge without the incarnation meant and, for Raft, without the promise.
func judgeNobody(n *Node, p *preface) verdict {
	meant := p.meant
	p.meant = n.inc
	if p.kind == kindRaft {
		n.joinUnasked(p.cluster)
	}
	v := n.judge(p)
	if meant != (Incarnation{}) {
		v.own = meant
	}
	return v
}

func (n *Node) joinUnasked(c ClusterID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := &n.formation
	if f.formed || f.promised != nil || f.join(c, f.slot, len(f.members), Terms{FirstToken: 1}) != nil {
		return
	}
	// A failure to enter is the node's.
	_ = n.enter(nil)
}
