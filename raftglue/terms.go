package raftglue

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// Raft's names for what it keeps, and ours for a vote.
const (
	keyCurrentTerm  = "CurrentTerm"
	keyLastVoteTerm = "LastVoteTerm"
	keyLastVoteCand = "LastVoteCand"
	keyVote         = "ticketing vote" // term, eight bytes, and candidate
)

// terms has the term rise in Raft's main loop alone. hashicorp/raft takes heartbeats up beside it, so that no disk holds
// them up, and raises the term there too (hashicorp/raft#695): a leader whose main loop does not know yet would write
// its next entry as one of its successor's term, which has another in that place, and a voter would fall back behind a
// term in which its main loop has voted meanwhile. Here a heartbeat goes beside the main loop only if it is of the term
// that is kept, and that term stands still until it has been taken up. A later term comes with the next AppendEntries,
// which goes through the main loop.
//
// It also keeps a vote in one write. Raft makes two, term and candidate, and a node that fell between them would have
// voted for an earlier term's candidate, whose log nobody compares then.
type terms struct {
	raft.StableStore
	mu  sync.RWMutex  // for reading: a heartbeat is taken up; for writing: the term rises
	now atomic.Uint64 // the term kept

	voteTerm uint64 // of the vote whose candidate is still to come; the main loop's
}

func newTerms(st raft.StableStore) (*terms, error) {
	t := &terms{StableStore: st}
	now, err := st.GetUint64([]byte(keyCurrentTerm))
	t.now.Store(now)
	return t, err
}

// SetUint64 is part of raft.StableStore.
func (t *terms) SetUint64(key []byte, value uint64) error {
	switch string(key) {
	case keyLastVoteTerm:
		t.voteTerm = value
		return nil
	case keyCurrentTerm:
	default:
		return t.StableStore.SetUint64(key, value)
	}
	if t.now.Load() == value { // whoever takes a heartbeat up may say so, and holds mu
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.StableStore.SetUint64(key, value)
	if err == nil {
		t.now.Store(value)
	}
	return err
}

// Set is part of raft.StableStore.
func (t *terms) Set(key, value []byte) error {
	if string(key) != keyLastVoteCand {
		return t.StableStore.Set(key, value)
	}
	return t.StableStore.Set([]byte(keyVote), append(binary.BigEndian.AppendUint64(nil, t.voteTerm), value...))
}

// GetUint64 is part of raft.StableStore.
func (t *terms) GetUint64(key []byte) (uint64, error) {
	if string(key) == keyLastVoteTerm {
		if vote, err := t.vote(); err != nil || vote != nil {
			return binary.BigEndian.Uint64(vote), err
		}
	}
	return t.StableStore.GetUint64(key)
}

// Get is part of raft.StableStore.
func (t *terms) Get(key []byte) ([]byte, error) {
	if string(key) == keyLastVoteCand {
		if vote, err := t.vote(); err != nil || vote != nil {
			return vote[8:], err
		}
	}
	return t.StableStore.Get(key)
}

var errVote = errors.New("raftglue: malformed vote")

// vote is the one kept; nil in a directory that has none yet, or in which Raft has written it.
func (t *terms) vote() ([]byte, error) {
	vote, err := t.StableStore.Get([]byte(keyVote))
	switch {
	case err != nil:
		return make([]byte, 8), err
	case len(vote) == 0:
		return nil, nil
	case len(vote) < 8:
		return make([]byte, 8), errVote
	}
	return vote, nil
}

// heartbeat has Raft take one up, or answers for it that its term is not this node's. While the term rises nobody waits
// for the disk here.
func (t *terms) heartbeat(rpc raft.RPC, take func(raft.RPC)) {
	still := t.mu.TryRLock()
	if still {
		defer t.mu.RUnlock()
	}
	now := t.now.Load()
	if a, ok := rpc.Command.(*raft.AppendEntriesRequest); !still || ok && a.Term != now {
		rpc.Respond(&raft.AppendEntriesResponse{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}, Term: now,
		}, nil)
		return
	}
	take(rpc)
}
