package raftglue

import (
	"encoding/binary"
	"slices"
	"sync"
)

// memStable is a raft.StableStore in memory: the term and the vote of a process that gets a new identity when it starts
// again.
type memStable struct {
	mu     sync.Mutex
	values map[string][]byte
}

func newMemStable() *memStable { return &memStable{values: map[string][]byte{}} }

// Set is part of raft.StableStore.
func (m *memStable) Set(key, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[string(key)] = slices.Clone(value)
	return nil
}

// Get is part of raft.StableStore; what is not there is empty.
func (m *memStable) Get(key []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.values[string(key)]), nil
}

// SetUint64 is part of raft.StableStore.
func (m *memStable) SetUint64(key []byte, value uint64) error {
	return m.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 is part of raft.StableStore; what is not there is 0.
func (m *memStable) GetUint64(key []byte) (uint64, error) {
	b, _ := m.Get(key)
	if len(b) == 0 {
		return 0, nil
	}
	return binary.BigEndian.Uint64(b), nil
}
