package raftglue

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// heard notes when this node, as leader, was last acknowledged by each peer and by a majority. A moment is that of
// sending what was acknowledged: what was sent before the process was stopped says nothing about the time after it.
type heard struct {
	voters func() (voters []raft.ServerID, self bool) // others with a vote; whether this node has one
	base   time.Time

	mu   sync.Mutex
	at   map[raft.ServerID]time.Duration // since base; one entry a peer ever heard in this term
	term uint64

	// majority is the latest moment since base at which a majority had acknowledged this leader; 0: none.
	majority atomic.Int64
}

func newHeard(voters func() ([]raft.ServerID, bool)) *heard {
	// base lies before every moment noted, so that 0 means none.
	return &heard{voters: voters, base: time.Now().Add(-time.Second), at: map[raft.ServerID]time.Duration{}}
}

// acknowledged notes that a peer has accepted this node as leader of a term, in answer to what was sent at sent.
func (h *heard) acknowledged(id raft.ServerID, term uint64, sent time.Time) {
	at := sent.Sub(h.base)
	h.mu.Lock()
	defer h.mu.Unlock()
	if term < h.term {
		return
	}
	if term > h.term {
		h.term = term
		clear(h.at)
		h.majority.Store(0)
	}
	if last := h.at[id]; at-last < time.Millisecond && last != 0 {
		return
	}
	h.at[id] = at
	voters, self := h.voters()
	need := majority(len(voters) + btoi(self))
	if self {
		need--
	}
	// The latest moment that at least need of the others have reached or passed.
	var best time.Duration
	for _, v := range voters {
		n := 0
		for _, w := range voters {
			if h.at[w] != 0 && h.at[w] >= h.at[v] {
				n++
			}
		}
		if n >= need {
			best = max(best, h.at[v])
		}
	}
	h.majority.Store(int64(best))
}

// within says whether a majority has acknowledged what was sent at most d ago.
func (h *heard) within(d time.Duration) bool {
	at := h.majority.Load()
	return at != 0 && time.Since(h.base)-time.Duration(at) <= d
}

// peer says how long ago what a peer has acknowledged was sent.
func (h *heard) peer(id raft.ServerID) (ago time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.at[id]
	return time.Since(h.base) - at, at != 0
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// comeback holds replication to a peer that cannot be reached until a heartbeat has reached it. Raft would double its
// pause at each failure, up to 10 s, and a healed follower would lag that long; its heartbeats are never further apart
// than half the heartbeat timeout.
type comeback struct {
	member func(raft.ServerID) bool // in the configuration

	mu      sync.Mutex
	waiting map[raft.ServerID]chan struct{}
	closed  bool
}

func newComeback(member func(raft.ServerID) bool) *comeback {
	return &comeback{member: member, waiting: map[raft.ServerID]chan struct{}{}}
}

func (b *comeback) wait(id raft.ServerID) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	ch := b.waiting[id]
	if ch == nil {
		ch = make(chan struct{})
		b.waiting[id] = ch
	}
	b.mu.Unlock()
	// Asked after ch is where release finds it: whoever removes the peer releases afterwards.
	if b.member(id) {
		<-ch
	}
}

func (b *comeback) reached(id raft.ServerID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ch := b.waiting[id]; ch != nil {
		close(ch)
		delete(b.waiting, id)
	}
}

// release lets all go on: leadership has ended, a change of members is under way, or the node stops (for good).
func (b *comeback) release(forGood bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = b.closed || forGood
	for id, ch := range b.waiting {
		close(ch)
		delete(b.waiting, id)
	}
}
