package raftglue

import "github.com/hashicorp/raft"

// view is what a leader knows of the members when it decides about the next change.
type view struct {
	size    int // members of the cluster, as it was formed
	self    raft.ServerID
	index   uint64 // a commit index at or behind the latest change
	seats   []seat
	joiners []wanted // in slot order, one a slot
}

type seat struct {
	member
	voter    bool
	live     bool // answered when asked last
	gone     bool // silent for long, or its address answers as another
	applied  uint64
	caughtUp bool
}

type wanted struct {
	member
	replaces bool // the operator gives it the slot, even of one that lives
}

type changeKind uint8

const (
	noChange changeKind = iota
	addLearner
	removeMember
	promote
)

// String names the change in the log.
func (k changeKind) String() string {
	return [...]string{"none", "add learner", "remove", "make voter"}[k]
}

type change struct {
	kind    changeKind
	id      raft.ServerID
	address raft.ServerAddress
}

// settled says whether every live voter has applied the latest change. A voter whose newest configuration is older
// refuses every candidate that is not in it, so that without this gate a cluster which loses its leader now may have
// none for ever.
func (v *view) settled() bool {
	for _, s := range v.seats {
		if s.voter && !s.gone && (!s.live || s.applied < v.index) {
			return false
		}
	}
	return true
}

func (v *view) learners() bool {
	for _, s := range v.seats {
		if !s.voter {
			return true
		}
	}
	return false
}

func (v *view) liveVoters(without raft.ServerID) (live int) {
	for _, s := range v.seats {
		if s.voter && s.live && s.id() != without {
			live++
		}
	}
	return live
}

// mayRemove says whether without that seat a majority of the members still lives.
func (v *view) mayRemove(id raft.ServerID) bool {
	return id != v.self && v.liveVoters(id) >= majority(v.size)
}

// nextChange decides which change of members is due: learner, remove whose place it takes, voter; never two under way,
// and never with fewer live voters than a majority of the members.
func nextChange(v *view) change {
	if !v.settled() || v.liveVoters("") < majority(v.size) {
		return change{}
	}
	for _, s := range v.seats { // learners that never came to be voters
		j, ok := v.joiner(s.Slot)
		if !s.voter && (s.gone || ok && j.Inc != s.Inc && !s.live) {
			return change{kind: removeMember, id: s.id()}
		}
	}
	for _, j := range v.joiners {
		if c := v.bringIn(j); c.kind != noChange {
			return c
		}
	}
	return change{}
}

func (v *view) joiner(slot int) (wanted, bool) {
	for _, j := range v.joiners {
		if j.Slot == slot {
			return j, true
		}
	}
	return wanted{}, false
}

func (v *view) bringIn(j wanted) change {
	var own, old *seat
	for i := range v.seats {
		s := &v.seats[i]
		switch {
		case s.Inc == j.Inc:
			own = s
		case s.Slot == j.Slot && s.voter:
			old = s
		}
	}
	switch {
	case own == nil:
		// A further learner in the slot waits until the one that is there has gone.
		for _, s := range v.seats {
			if s.Slot == j.Slot && !s.voter {
				return change{}
			}
		}
		return change{kind: addLearner, id: j.id(), address: j.address()}
	case own.voter || !own.live || !own.caughtUp:
		return change{}
	case old == nil:
		return change{kind: promote, id: own.id(), address: own.address()}
	case (old.gone || j.replaces) && v.mayRemove(old.id()):
		return change{kind: removeMember, id: old.id()}
	}
	return change{}
}
