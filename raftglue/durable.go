package raftglue

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// dataDir is a directory that holds what a member must not forget: its identity with a start count, the starts of its
// peers, log and votes (wal), snapshots. It is locked against a second process.
type dataDir struct {
	path string
	lock *os.File
	id   identityFile
}

// identityFile is identity.json. It is written whole and fsynced before anything is answered that rests on it.
type identityFile struct {
	Version     int         `json:"version"`
	Incarnation Incarnation `json:"incarnation"`
	Starts      uint64      `json:"starts"`
	Slot        int         `json:"slot"`
	Formed      bool        `json:"formed"`
	Cluster     ClusterID   `json:"cluster"`
	Size        int         `json:"size"`
	Terms       Terms       `json:"terms"`
	Promised    *promise    `json:"promised,omitempty"`
	Withdrawn   []ClusterID `json:"withdrawn,omitempty"`
}

const (
	identityName   = "identity.json"
	peersName      = "peers.json"
	walName        = "wal"
	walMetaName    = "wal-meta.db"
	snapshotsName  = "snapshots" // hashicorp/raft's name
	keepSnapshots  = 2
	logCacheLength = 512 // entries; those that followers are sent are nearly always among the last
)

var stableIdentity = []byte("ticketing incarnation")

// DirError says that a data directory cannot be used, and how to come back.
type DirError struct {
	Dir string
	Err error
}

func (e *DirError) Error() string {
	return fmt.Sprintf("DATA_DIR %s: %v: this node must not go on as who it was. To come back as a new member, move the "+
		"directory away and start again: a cluster whose majority lives takes it in", e.Dir, e.Err)
}

// Unwrap is the cause.
func (e *DirError) Unwrap() error { return e.Err }

// ErrDirInUse says that another process has locked the data directory.
var ErrDirInUse = errors.New("in use by another process")

var (
	errStateMissing  = errors.New("it has an identity, but its log is missing")
	errPeersMissing  = errors.New("it has an identity, but " + peersName + " is missing")
	errStateForeign  = errors.New("its log belongs to another identity")
	errStateNoName   = errors.New("it has a log, but no identity")
	errSingleDir     = errors.New("it belongs to a single node")
	errClusterDir    = errors.New("it belongs to a member of a cluster")
	errIdentityMajor = errors.New("its identity was written by a newer version")
)

func lockDir(path string) (*os.File, error) {
	if err := makeDir(path); err != nil {
		return nil, fmt.Errorf("DATA_DIR: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("DATA_DIR: %w", err)
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("DATA_DIR %s: %w", path, ErrDirInUse)
	}
	return f, nil
}

// openDataDir takes up the directory's identity, or gives it one, and counts the start. The stores are returned for a
// member of a cluster.
func (n *Node) openDataDir() (_ *stores, err error) {
	d := &dataDir{path: n.cfg.DataDir}
	if d.lock, err = lockDir(d.path); err != nil {
		return nil, err
	}
	n.dir = d
	st, err := n.readDataDir(d)
	if err != nil {
		d.lock.Close()
		return nil, err
	}
	return st, nil
}

func (n *Node) readDataDir(d *dataDir) (*stores, error) {
	if exists(d.path, singleName) {
		return nil, &DirError{d.path, errSingleDir}
	}
	err := readJSON(d.path, identityName, &d.id)
	switch {
	case errors.Is(err, fs.ErrNotExist) && exists(d.path, walName):
		return nil, &DirError{d.path, errStateNoName}
	case errors.Is(err, fs.ErrNotExist):
		// In this order: a directory with an identity has all that an identity needs.
		if err := writeJSON(d.path, peersName, map[string]start{}); err != nil {
			return nil, fmt.Errorf("DATA_DIR: %w", err)
		}
		d.id = identityFile{Version: 1, Incarnation: newIncarnation(), Slot: n.formation.slot}
	case err != nil:
		return nil, &DirError{d.path, err}
	case d.id.Version != 1:
		return nil, &DirError{d.path, errIdentityMajor}
	}
	d.id.Starts++
	if err := writeJSON(d.path, identityName, &d.id); err != nil {
		return nil, fmt.Errorf("DATA_DIR: %w", err)
	}
	n.inc, n.start.Count, n.seed = d.id.Incarnation, d.id.Starts, d.id.Starts<<32
	if err := n.readPeers(d); err != nil {
		return nil, &DirError{d.path, err}
	}
	f := &n.formation
	f.formed, f.cluster, f.size, f.terms = d.id.Formed, d.id.Cluster, d.id.Size, d.id.Terms
	f.promised, f.withdrawn = d.id.Promised, d.id.Withdrawn
	if f.formed {
		f.slot = d.id.Slot
	}
	return n.recover(d)
}

// recover opens the log of a member, and removes what a start left behind that became part of nothing. A coordinator
// that had begun its cluster, and fell before it could write that down, has a log.
func (n *Node) recover(d *dataDir) (*stores, error) {
	f := &n.formation
	if !f.formed && f.promised == nil || !f.formed && !exists(d.path, walName, walMetaName) {
		return nil, n.removeState(d)
	}
	if !hasLog(d) {
		return nil, &DirError{d.path, errStateMissing}
	}
	st, err := n.openStores(d)
	if err != nil {
		return nil, &DirError{d.path, err}
	}
	if f.formed {
		return st, nil
	}
	if last, err := st.log.LastIndex(); err != nil || last == 0 {
		st.close()
		return nil, errors.Join(err, n.removeState(d))
	}
	f.become(f.promised.Cluster, len(f.promised.Members), f.promised.Terms)
	return st, n.persist()
}

// hasLog says whether the log is there. The library makes an empty one of an empty head, and of a last segment whose file
// is gone: that would forget what was acknowledged, and keep the votes.
func hasLog(d *dataDir) bool {
	head, err := os.Stat(filepath.Join(d.path, walName, walMetaName))
	if err != nil || head.Size() == 0 {
		return false
	}
	segments, err := filepath.Glob(filepath.Join(d.path, walName, "*.wal"))
	return err == nil && len(segments) > 0
}

func (n *Node) removeState(d *dataDir) error {
	return errors.Join(os.RemoveAll(filepath.Join(d.path, walName)), os.RemoveAll(filepath.Join(d.path, snapshotsName)))
}

func (n *Node) readPeers(d *dataDir) error {
	known := map[string]start{}
	if err := readJSON(d.path, peersName, &known); errors.Is(err, fs.ErrNotExist) {
		return errPeersMissing
	} else if err != nil {
		return err
	}
	for hex, s := range known {
		var inc Incarnation
		if err := inc.UnmarshalText([]byte(hex)); err != nil {
			return err
		}
		n.seen.last[inc] = s
	}
	n.seen.save = func(m map[Incarnation]start) error {
		out := map[string]start{}
		for inc, s := range maps.All(m) {
			out[inc.String()] = s
		}
		err := writeJSON(d.path, peersName, out)
		if err != nil {
			n.fail(fmt.Errorf("DATA_DIR: %w", err))
		}
		return err
	}
	return nil
}

// persist writes the formation down, where there is a data directory. n.mu is held, or nobody else is there yet.
func (n *Node) persist() error {
	if n.dir == nil {
		return nil
	}
	f, id := &n.formation, &n.dir.id
	id.Slot, id.Formed, id.Cluster, id.Size, id.Terms = f.slot, f.formed, f.cluster, f.size, f.terms
	id.Promised, id.Withdrawn = f.promised, f.withdrawn
	err := writeJSON(n.dir.path, identityName, id)
	if err != nil {
		err = fmt.Errorf("DATA_DIR: %w", err)
		go n.fail(err) // ends at once; fail may need what the caller holds
	}
	return err
}

// newStores is where a node that becomes part of a cluster keeps its log.
func (n *Node) newStores() (*stores, error) {
	if n.dir == nil {
		return memStores(), nil
	}
	if err := n.removeState(n.dir); err != nil {
		return nil, fmt.Errorf("DATA_DIR: %w", err)
	}
	return n.openStores(n.dir)
}

func (n *Node) openStores(d *dataDir) (*stores, error) {
	path := filepath.Join(d.path, walName)
	if err := makeDir(path); err != nil {
		return nil, err
	}
	logger := newRaftLog(n.log)
	w, err := wal.Open(path, wal.WithLogger(logger))
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	owner, err := w.Get(stableIdentity)
	switch {
	case err != nil:
		w.Close()
		return nil, err
	case len(owner) == 0:
		if err := w.Set(stableIdentity, n.inc[:]); err != nil {
			w.Close()
			return nil, err
		}
	case string(owner) != string(n.inc[:]):
		w.Close()
		return nil, errStateForeign
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(d.path, keepSnapshots, logger)
	if err != nil {
		w.Close()
		return nil, err
	}
	watch := newDiskWatch(n, w)
	cache, err := raft.NewLogCache(logCacheLength, watch)
	if err = errors.Join(err, watch.check()); err != nil {
		watch.close()
		w.Close()
		return nil, err
	}
	return &stores{cache, watch, snaps, watch.size, func() error { watch.close(); return w.Close() }, false}, nil
}

func (n *Node) closeDir(st *stores) {
	if st != nil {
		st.close()
	}
	if n.dir != nil {
		n.dir.lock.Close()
	}
}

func exists(parts ...string) bool {
	_, err := os.Stat(filepath.Join(parts...))
	return err == nil
}

func readJSON(dir, name string, v any) error {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// writeJSON replaces a file so that after a crash it is the old or the new one, and returns when the new one is on disk.
func writeJSON(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, name+".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, name)); err != nil {
		return err
	}
	return syncDir(dir)
}

// makeDir makes a directory, and what it lies in, that are still there after a crash: what is fsynced in a directory is
// worth nothing without it.
func makeDir(path string) error {
	var above []string
	for p := filepath.Clean(path); !exists(p) && p != filepath.Dir(p); p = filepath.Dir(p) {
		above = append(above, filepath.Dir(p))
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	for _, p := range above {
		if err := syncDir(p); err != nil {
			return err
		}
	}
	return nil
}

// syncDir has what a directory lists on disk; tests replace it.
var syncDir = func(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
