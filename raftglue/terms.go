package raftglue

import (
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// Raft's names for what it keeps.
const keyCurrentTerm = "CurrentTerm"

// terms has the term rise in Raft's main loop alone. hashicorp/raft takes heartbeats up beside it, so that no disk holds
// them up, and raises the term there too (hashicorp/raft#695): a leader whose main loop does not know yet would write
// its next entry as one of its successor's term, which has another in that place, and a voter would fall back behind a
// term in which its main loop has voted meanwhile. Here a heartbeat goes beside the main loop only if it is of the term
// that is kept, and that term stands still until it has been taken up. A later term comes with the next AppendEntries,
// which goes through the main loop.
type terms struct {
	raft.StableStore
	mu  sync.RWMutex  // for reading: a heartbeat is taken up; for writing: the term rises
	now atomic.Uint64 // the term kept
}

func newTerms(st raft.StableStore) (*terms, error) {
	t := &terms{StableStore: st}
	now, err := st.GetUint64([]byte(keyCurrentTerm))
	t.now.Store(now)
	return t, err
}

// SetUint64 is part of raft.StableStore.
func (t *terms) SetUint64(key []byte, value uint64) error {
	if string(key) != keyCurrentTerm {
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
