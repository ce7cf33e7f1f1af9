package raftglue

import (
	"io"

	"github.com/hashicorp/raft"
)

// Machine is the server's apply goroutine, as Raft's goroutines see it: every call blocks until the apply goroutine has
// done it, which must never wait for Raft. It is called until Node.Stop has returned.
type Machine interface {
	// Apply is given committed records in the order of the log. The records are lent until it returns.
	Apply(records [][]byte)
	// Snapshot is the replicated state after all that Apply was given. What it returns is not changed any more.
	Snapshot() []byte
	// Restore replaces the replicated state, and ends the own stint. The snapshot is lent until it returns.
	Restore(snapshot []byte) error
	// Role tells of a change of role, or of the leader that is known. Calls come in order, from one goroutine; before
	// the first the node is not active. That leadership was lost is told even if it has come back since.
	Role(r Role)
}

// fsm hands what Raft has committed to the Machine. Raft's FSM goroutine calls it.
type fsm struct {
	machine Machine
	// configured is told each configuration that is committed, in order, but for those that a snapshot passes over; then nil.
	configured func(*raft.Configuration)
	records    [][]byte
	results    []any
}

// ApplyBatch is part of raft.BatchingFSM.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	f.records = f.records[:0]
	for _, l := range logs {
		if l.Type == raft.LogCommand {
			f.records = append(f.records, l.Data)
		} else {
			cfg := raft.DecodeConfiguration(l.Data)
			f.configured(&cfg)
		}
	}
	if len(f.records) > 0 {
		f.machine.Apply(f.records)
		clear(f.records)
	}
	for len(f.results) < len(logs) {
		f.results = append(f.results, nil)
	}
	return f.results[:len(logs)]
}

// Apply is part of raft.FSM.
func (f *fsm) Apply(l *raft.Log) any { f.ApplyBatch([]*raft.Log{l}); return nil }

// Snapshot is part of raft.FSM.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) { return fsmSnapshot(f.machine.Snapshot()), nil }

// Restore is part of raft.FSM.
func (f *fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	err = f.machine.Restore(b)
	f.configured(nil)
	return err
}

type fsmSnapshot []byte

// Persist is part of raft.FSMSnapshot.
func (s fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s); err != nil {
		return err
	}
	return sink.Close()
}

// Release is part of raft.FSMSnapshot.
func (fsmSnapshot) Release() {}
