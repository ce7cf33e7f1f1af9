package locktable_test

import (
	"slices"

	"github.com/ticketing-go/ticketing/locktable"
)

// Raft as far as a table can tell: real logs and terms on each node, elections by the rule of the longer log, and steps
// in any order. A leader may be deposed without knowing it, and elected again without its table noticing.

type raftEntry struct {
	term int
	p    *proposal // nil: the leader's own empty entry
}

type raftFuture struct {
	p    *proposal
	lost bool // else: refused
}

type raftWaiting struct {
	index int
	p     *proposal
}

type raft struct {
	id           int
	term         int
	log          []raftEntry
	commit       int
	leader       bool
	transferring bool
	match        map[int]int
	inbox        []*proposal   // handed over and not yet taken
	futures      []raftFuture  // not yet seen by the table's side
	waiting      []raftWaiting // appended by this leader, not known to be committed
	quiet        bool          // the table's side has seen the present state of leadership
}

func (r *raft) restart() {
	r.leader, r.transferring, r.quiet = false, false, true
	r.match, r.inbox, r.futures, r.waiting = map[int]int{}, nil, nil, nil
}

// behind says whether the other's log is the more complete one.
func (r *raft) behind(o *raft) bool {
	last := func(r *raft) int {
		if len(r.log) == 0 {
			return 0
		}
		return r.log[len(r.log)-1].term
	}
	return last(o) > last(r) || last(o) == last(r) && len(o.log) > len(r.log)
}

func (r *raft) stepDown() {
	if !r.leader {
		return
	}
	r.leader, r.transferring, r.quiet = false, false, false
	for _, w := range r.waiting {
		if w.index > r.commit {
			r.futures = append(r.futures, raftFuture{w.p, true})
		}
	}
	r.waiting = nil
}

// take takes one proposal: appends or refuses it.
func (r *raft) take() {
	if len(r.inbox) == 0 {
		return
	}
	p := r.inbox[0]
	r.inbox = r.inbox[1:]
	if !r.leader || r.transferring {
		r.futures = append(r.futures, raftFuture{p, false})
		return
	}
	r.log = append(r.log, raftEntry{r.term, p})
	r.waiting = append(r.waiting, raftWaiting{len(r.log), p})
}

func (r *raft) advance(majority int) {
	if !r.leader {
		return
	}
	sizes := []int{len(r.log)}
	for _, n := range r.match {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	slices.Reverse(sizes)
	if len(sizes) < majority {
		return
	}
	if i := sizes[majority-1]; i > r.commit && r.log[i-1].term == r.term {
		r.commit = i
		r.waiting = slices.DeleteFunc(r.waiting, func(w raftWaiting) bool { return w.index <= i })
	}
}

// elect lets n ask the voters.
func elect(n *raft, voters []*raft, majority int) {
	term := 0
	for _, v := range voters {
		if n.behind(v) {
			return
		}
		term = max(term, v.term)
	}
	if len(voters) < majority {
		return
	}
	for _, v := range voters {
		v.stepDown()
		v.term = term + 1
	}
	n.leader, n.quiet, n.match = true, false, map[int]int{}
	n.log = append(n.log, raftEntry{n.term, nil})
}

// replicate sends m the log of n up to an index; m answers.
func replicate(n, m *raft, upto int) {
	if !n.leader {
		return
	}
	if m.term > n.term {
		n.stepDown()
		return
	}
	if m.term < n.term || m.leader {
		m.stepDown()
		m.term = n.term
	}
	same := m.commit
	for same < min(len(m.log), upto) && m.log[same] == n.log[same] {
		same++
	}
	if same < upto {
		m.log = append(slices.Clone(m.log[:same]), n.log[same:upto]...)
	}
	m.commit = max(m.commit, min(n.commit, upto))
	n.match[m.id] = max(upto, n.match[m.id])
}

// asReference is a record as the reference applies it.
func asReference(r *locktable.Record) proposal {
	p := proposal{by: r.By, seq: r.Seq, advance: r.Advance, ref: &refRecord{}}
	asks := r.Asks
	for _, e := range r.Entries {
		x := refEntry{end: e.End, keys: string(e.Keys), owner: e.ID}
		switch e.Kind {
		case locktable.Start:
			x.kind, x.terms = refStart, r.Start
		case locktable.Barrier:
			x.kind = refBarrier
		case locktable.Reaffirm:
			x.kind, x.keys = refReaffirm, string(e.Keys.First())
		}
		for _, a := range asks[:e.Asks] {
			x.asks = append(x.asks, refGrant{keys: string(a.Keys), lease: a.Lease, flags: a.Flags, owner: a.Owner})
		}
		asks = asks[e.Asks:]
		p.ref.entries = append(p.ref.entries, x)
	}
	return p
}
