package raftglue

import (
	"sync"

	"github.com/hashicorp/raft"
)

// memLog is a raft.LogStore in memory: a ring of entries with contiguous indexes, in a slice whose length is a power of
// two. It keeps the entries it is given, whose data must not change. Raft's goroutines call it.
type memLog struct {
	mu    sync.RWMutex
	ring  []*raft.Log
	first uint64 // 0: empty
	last  uint64
	bytes int
}

const memLogSmallest = 1024

func newMemLog() *memLog { return &memLog{ring: make([]*raft.Log, memLogSmallest)} }

func entryBytes(l *raft.Log) int { return len(l.Data) + len(l.Extensions) + entryOverhead }

func (m *memLog) at(i uint64) **raft.Log { return &m.ring[i&uint64(len(m.ring)-1)] }

// FirstIndex is part of raft.LogStore.
func (m *memLog) FirstIndex() (uint64, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.first, nil
}

// LastIndex is part of raft.LogStore.
func (m *memLog) LastIndex() (uint64, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.last, nil
}

// size is how many entries the log holds, and their bytes.
func (m *memLog) size() (entries, bytes int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.first == 0 {
		return 0, 0
	}
	return int(m.last - m.first + 1), m.bytes
}

// GetLog is part of raft.LogStore.
func (m *memLog) GetLog(i uint64, l *raft.Log) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.first == 0 || i < m.first || i > m.last {
		return raft.ErrLogNotFound
	}
	*l = **m.at(i)
	return nil
}

// StoreLog is part of raft.LogStore.
func (m *memLog) StoreLog(l *raft.Log) error { return m.StoreLogs([]*raft.Log{l}) }

// StoreLogs is part of raft.LogStore. An entry that does not continue the log starts it anew: so Raft goes on after it
// has installed a snapshot that lies beyond the log.
func (m *memLog) StoreLogs(ls []*raft.Log) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range ls {
		if m.first != 0 && (l.Index > m.last+1 || l.Index < m.first) {
			m.drop(m.first, m.last)
		}
		if m.first == 0 {
			m.first, m.last = l.Index, l.Index-1
		}
		if l.Index-m.first >= uint64(len(m.ring)) {
			m.resize(2 * len(m.ring))
		}
		at := m.at(l.Index)
		if *at != nil {
			m.bytes -= entryBytes(*at)
		}
		*at = l
		m.bytes += entryBytes(l)
		m.last = max(m.last, l.Index)
	}
	return nil
}

// DeleteRange is part of raft.LogStore. Raft deletes at one end only.
func (m *memLog) DeleteRange(lo, hi uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.first != 0 {
		m.drop(max(lo, m.first), min(hi, m.last))
	}
	return nil
}

// drop removes lo to hi, which lie within the log; mu is held.
func (m *memLog) drop(lo, hi uint64) {
	for i := lo; i <= hi; i++ {
		at := m.at(i)
		m.bytes -= entryBytes(*at)
		*at = nil
	}
	switch {
	case lo > hi:
	case lo == m.first && hi == m.last:
		m.first, m.last = 0, 0
	case lo == m.first:
		m.first = hi + 1
	case hi == m.last:
		m.last = lo - 1
	default:
		// A hole cannot be told to Raft in terms of a first and a last index: what lies before it is no log any more.
		for i := m.first; i < lo; i++ {
			at := m.at(i)
			m.bytes -= entryBytes(*at)
			*at = nil
		}
		m.first = hi + 1
	}
	if n := len(m.ring); n > memLogSmallest && (m.first == 0 || int(m.last-m.first+1) < n/8) {
		m.resize(n / 2)
	}
}

func (m *memLog) resize(n int) {
	old := m.ring
	m.ring = make([]*raft.Log, n)
	if m.first == 0 {
		return
	}
	for i := m.first; i <= m.last; i++ {
		*m.at(i) = old[i&uint64(len(old)-1)]
	}
}
