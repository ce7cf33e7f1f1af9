package raftglue

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// memSnapshots is a raft.SnapshotStore in memory. It keeps the newest finished snapshot; one that is being written is
// seen by nobody, and one that was cancelled never was.
type memSnapshots struct {
	mu   sync.Mutex
	made int64             // the newest name's milliseconds
	meta raft.SnapshotMeta // ID empty: none
	data []byte            // never changed once it is here
}

var errNoSnapshot = errors.New("raftglue: no such snapshot")

// Create is part of raft.SnapshotStore.
func (m *memSnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, fmt.Errorf("raftglue: snapshot version %d", version)
	}
	m.mu.Lock()
	// Two of one millisecond must not have one name.
	m.made = max(m.made+1, time.Now().UnixMilli())
	id := fmt.Sprintf("%d-%d-%d", term, index, m.made)
	m.mu.Unlock()
	return &memSink{store: m, meta: raft.SnapshotMeta{
		Version: version, ID: id, Index: index, Term: term,
		Configuration: configuration.Clone(), ConfigurationIndex: configurationIndex,
	}}, nil
}

// List is part of raft.SnapshotStore.
func (m *memSnapshots) List() ([]*raft.SnapshotMeta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.meta.ID == "" {
		return nil, nil
	}
	meta := m.meta
	meta.Configuration = meta.Configuration.Clone()
	return []*raft.SnapshotMeta{&meta}, nil
}

// Open is part of raft.SnapshotStore. What it returns stays whole even if a newer snapshot takes this one's place.
func (m *memSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.meta.ID != id {
		return nil, nil, errNoSnapshot
	}
	meta := m.meta
	meta.Configuration = meta.Configuration.Clone()
	return &meta, io.NopCloser(bytes.NewReader(m.data)), nil
}

// memSink is a snapshot that is being written, by one goroutine.
type memSink struct {
	store *memSnapshots
	meta  raft.SnapshotMeta
	buf   bytes.Buffer
	done  bool
}

var errSinkClosed = errors.New("raftglue: snapshot already closed")

// ID is part of raft.SnapshotSink.
func (s *memSink) ID() string { return s.meta.ID }

// Write is part of raft.SnapshotSink.
func (s *memSink) Write(p []byte) (int, error) {
	if s.done {
		return 0, errSinkClosed
	}
	return s.buf.Write(p)
}

// Close finishes the snapshot; a newer one that was finished meanwhile stays. Closing again does nothing.
func (s *memSink) Close() error {
	if s.done {
		return nil
	}
	s.done = true
	s.meta.Size = int64(s.buf.Len())
	m := s.store
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.meta.ID == "" || s.meta.Term > m.meta.Term || s.meta.Term == m.meta.Term && s.meta.Index >= m.meta.Index {
		m.meta, m.data = s.meta, s.buf.Bytes()
	}
	return nil
}

// Cancel drops what was written.
func (s *memSink) Cancel() error {
	s.done = true
	s.buf = bytes.Buffer{}
	return nil
}
