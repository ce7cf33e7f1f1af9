package raftglue

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// diskWatch is the log and the votes on disk, watched: an operation that fails, or takes too long, ends this node's
// part in the cluster. Without that a leader whose disk hangs would go on sending heartbeats, so that nobody else is
// elected, and commit nothing (hashicorp/raft#503).
type diskWatch struct {
	wal   *wal.WAL
	node  *Node
	limit time.Duration

	mu      sync.Mutex
	under   map[uint64]time.Time // operations under way, by number
	next    uint64
	entries int // in the log, and about their bytes
	bytes   int

	stop chan struct{}
	done sync.WaitGroup

	// test comes before each operation, in tests that have a disk fail or hang; nil: nothing.
	test func() error
}

func newDiskWatch(n *Node, w *wal.WAL) *diskWatch {
	d := &diskWatch{
		wal: w, node: n, limit: max(5*n.cfg.Election, time.Second), under: map[uint64]time.Time{}, stop: make(chan struct{}),
	}
	first, _ := w.FirstIndex()
	last, _ := w.LastIndex()
	if first != 0 {
		// What they take is unknown until they are compacted; their number counts meanwhile.
		d.entries = int(last - first + 1)
		d.bytes = d.entries * entryOverhead
	}
	d.done.Add(1)
	go d.watch() // until close
	return d
}

func (d *diskWatch) watch() {
	defer d.done.Done()
	tick := time.NewTicker(d.limit / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-d.stop:
			return
		}
		if took := d.longest(); took > d.limit {
			d.node.fail(fmt.Errorf("the disk has not answered for %v", took.Round(time.Millisecond)))
		}
	}
}

func (d *diskWatch) longest() (took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, since := range d.under {
		took = max(took, time.Since(since))
	}
	return took
}

func (d *diskWatch) close() {
	close(d.stop)
	d.done.Wait()
}

// run does one operation under watch.
func (d *diskWatch) run(op func() error) error {
	d.mu.Lock()
	id := d.next
	d.next++
	d.under[id] = time.Now()
	d.mu.Unlock()
	var err error
	if d.test != nil {
		err = d.test()
	}
	if err == nil {
		err = op()
	}
	d.mu.Lock()
	delete(d.under, id)
	d.mu.Unlock()
	if err != nil {
		d.node.fail(fmt.Errorf("the disk: %w", err))
	}
	return err
}

func (d *diskWatch) size() (entries, bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.entries, d.bytes
}

// IsMonotonic is part of raft.MonotonicLogStore.
func (d *diskWatch) IsMonotonic() bool { return d.wal.IsMonotonic() }

// FirstIndex is part of raft.LogStore.
func (d *diskWatch) FirstIndex() (uint64, error) { return d.wal.FirstIndex() }

// LastIndex is part of raft.LogStore.
func (d *diskWatch) LastIndex() (uint64, error) { return d.wal.LastIndex() }

// GetLog is part of raft.LogStore. It does not return what is spoilt, nor an error for it; see Set.
func (d *diskWatch) GetLog(i uint64, l *raft.Log) error {
	err := d.read(i, l)
	if errors.Is(err, errSpoilt) {
		d.node.fail(fmt.Errorf("the disk: %w", err))
		select {} // the node has failed, and the process ends
	}
	return err
}

// read reads one entry and makes sure that it is the one that was written: the library checks the last batch alone.
func (d *diskWatch) read(i uint64, l *raft.Log) (err error) {
	defer func() {
		if p := recover(); p != nil { // its decoder does not expect just any bytes
			err = fmt.Errorf("entry %d: %w: %v", i, errSpoilt, p)
		}
	}()
	if err := d.wal.GetLog(i, l); errors.Is(err, raft.ErrLogNotFound) || errors.Is(err, wal.ErrClosed) {
		return err
	} else if err != nil {
		return fmt.Errorf("entry %d: %w: %w", i, errSpoilt, err)
	}
	if l.Index != i || !bytes.Equal(l.Extensions, seal(l)) {
		return fmt.Errorf("entry %d: %w", i, errSpoilt)
	}
	l.Extensions = nil
	return nil
}

// check reads the whole log once.
func (d *diskWatch) check() error {
	first, err := d.wal.FirstIndex()
	last, err2 := d.wal.LastIndex()
	if err := errors.Join(err, err2); err != nil || first == 0 {
		return err
	}
	var l raft.Log
	for i := first; i <= last; i++ {
		if err := d.read(i, &l); err != nil {
			return err
		}
	}
	return nil
}

var errSpoilt = errors.New("the log has another content than was written")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal is the checksum of an entry, which stands on disk in place of Raft's extensions, that we do not use.
func seal(l *raft.Log) []byte {
	var head [17]byte
	binary.BigEndian.PutUint64(head[:], l.Index)
	binary.BigEndian.PutUint64(head[8:], l.Term)
	head[16] = byte(l.Type)
	return binary.BigEndian.AppendUint32(nil, crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, l.Data))
}

// StoreLog is part of raft.LogStore.
func (d *diskWatch) StoreLog(l *raft.Log) error { return d.StoreLogs([]*raft.Log{l}) }

// StoreLogs is part of raft.LogStore; it returns when the entries are on disk.
func (d *diskWatch) StoreLogs(ls []*raft.Log) error {
	sealed := make([]*raft.Log, len(ls)) // copies: ls is Raft's
	for i, l := range ls {
		c := *l
		c.Extensions = seal(l)
		sealed[i] = &c
	}
	err := d.run(func() error { return d.wal.StoreLogs(sealed) })
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.entries += len(ls)
		for _, l := range ls {
			d.bytes += entryBytes(l)
		}
	}
	return err
}

// DeleteRange is part of raft.LogStore.
func (d *diskWatch) DeleteRange(lo, hi uint64) error {
	err := d.run(func() error { return d.wal.DeleteRange(lo, hi) })
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		if gone := min(int(hi-lo+1), d.entries); d.entries > 0 {
			d.bytes -= int(int64(d.bytes) * int64(gone) / int64(d.entries))
			d.entries -= gone
		}
	}
	return err
}

// Get is part of raft.StableStore.
func (d *diskWatch) Get(key []byte) ([]byte, error) { return d.wal.Get(key) }

// GetUint64 is part of raft.StableStore.
func (d *diskWatch) GetUint64(key []byte) (uint64, error) { return d.wal.GetUint64(key) }

// Set is part of raft.StableStore. It does not return an error: Raft would panic, where the node can end in order.
func (d *diskWatch) Set(key, value []byte) error {
	if d.run(func() error { return d.wal.Set(key, value) }) != nil {
		select {} // the node has failed, and the process ends
	}
	return nil
}

// SetUint64 is part of raft.StableStore; see Set.
func (d *diskWatch) SetUint64(key []byte, value uint64) error {
	if d.run(func() error { return d.wal.SetUint64(key, value) }) != nil {
		select {} // the node has failed, and the process ends
	}
	return nil
}
