package raftglue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// durableWorld is a world whose members have data directories.
func durableWorld(t *testing.T, dir string) *world {
	w := newWorld(t, 3)
	w.edit = func(slot int, c *Config) { c.DataDir = filepath.Join(dir, fmt.Sprint(slot)) }
	return w
}

func TestDurableNodesGoOn(t *testing.T) {
	dir := t.TempDir()
	virtual(t, func(t *testing.T) {
		w := durableWorld(t, dir)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		incs := map[int]Incarnation{}
		seeds := map[int]uint64{}
		for slot, p := range w.procs {
			incs[slot], seeds[slot] = p.inc, p.StintSeed()
		}
		for round := range 6 {
			for range 20 {
				w.mustCommit(2 * time.Second)
			}
			// All at once, or one.
			for slot := range w.procs {
				if round%2 == 0 || slot == round%3 {
					w.kill(slot)
				}
			}
			for slot := range w.procs {
				if w.procs[slot] == nil {
					w.start(slot)
				}
			}
			w.within(5*time.Second, "all ready again", w.allReady)
			w.mustCommit(2 * time.Second)
			w.check()
			for slot, p := range w.procs {
				if p.inc != incs[slot] {
					t.Errorf("round %d: slot %d has another incarnation", round, slot)
				}
				if p.StintSeed() < seeds[slot] || round%2 == 0 && p.StintSeed() == seeds[slot] {
					t.Errorf("round %d: slot %d: stint seed %d after %d", round, slot, p.StintSeed(), seeds[slot])
				}
				seeds[slot] = p.StintSeed()
			}
		}
		w.within(time.Second, "everybody has applied all", func() bool {
			for _, p := range w.procs {
				if len(p.reg.all()) < len(w.acked) {
					return false
				}
			}
			return true
		})
	})
}

func TestDurableSnapshotsAreGoneOnFrom(t *testing.T) {
	dir := t.TempDir()
	virtual(t, func(t *testing.T) {
		w := durableWorld(t, dir)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		for range 30 {
			w.mustCommit(time.Second)
		}
		for _, p := range w.procs {
			c := p.consensus.Load()
			rc := c.raft.ReloadableConfig()
			rc.TrailingLogs = 1
			if err := errors.Join(c.raft.ReloadConfig(rc), c.raft.Snapshot().Error()); err != nil {
				t.Fatal(err)
			}
		}
		w.mustCommit(time.Second)
		w.stopAll()
		w.startAll()
		w.within(5*time.Second, "all ready again", w.allReady)
		w.mustCommit(time.Second)
		w.check()
		for slot, p := range w.procs {
			if s := p.Status(); s.SnapshotIndex == 0 {
				t.Errorf("slot %d has no snapshot", slot)
			}
		}
	})
}

func startError(t *testing.T, w *world, slot int) error {
	t.Helper()
	c, _, _ := w.config(slot, w.members[slot])
	n, err := Start(c)
	if err == nil {
		n.stopped.Do(n.shutdown)
	}
	return err
}

func TestDirectoriesThatMustNotBeUsed(t *testing.T) {
	dir := t.TempDir()
	virtual(t, func(t *testing.T) {
		w := durableWorld(t, dir)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		for range 5 {
			w.mustCommit(time.Second)
		}
		own := filepath.Join(dir, "1")
		if err := startError(t, w, 1); !errors.Is(err, ErrDirInUse) {
			t.Errorf("a second process in the directory: %v", err)
		}
		w.kill(1)
		keep := filepath.Join(dir, "keep")
		backup(t, own, keep)
		for _, c := range []struct {
			name string
			harm func() error
		}{
			{"log missing", func() error { return os.RemoveAll(filepath.Join(own, walName)) }},
			{"log's head missing", func() error { return os.Remove(filepath.Join(own, walName, walMetaName)) }},
			{"log's head empty", func() error { return os.Truncate(filepath.Join(own, walName, walMetaName), 0) }},
			{"log's segments missing", func() error { return each(filepath.Join(own, walName, "*.wal"), os.Remove) }},
			{"segment's head overwritten", func() error {
				return each(filepath.Join(own, walName, "*.wal"), func(f string) error { return overwrite(f, 0) })
			}},
			{"a byte of an entry", func() error { return spoil(own, w.acked[0], 0) }},
			{"what stands before an entry's data", func() error { return spoil(own, w.acked[0], 4) }},
			{"peers missing", func() error { return os.Remove(filepath.Join(own, peersName)) }},
			{"identity missing", func() error { return os.Remove(filepath.Join(own, identityName)) }},
			{"identity cut off", func() error { return os.Truncate(filepath.Join(own, identityName), 20) }},
			{"identity of a newer version", func() error {
				return os.WriteFile(filepath.Join(own, identityName), []byte(`{"version":2}`), 0o600)
			}},
			{"another's log", func() error {
				os.RemoveAll(filepath.Join(own, walName))
				return os.CopyFS(filepath.Join(own, walName), os.DirFS(filepath.Join(dir, "0", walName)))
			}},
			{"a single node's", func() error { return os.WriteFile(filepath.Join(own, singleName), []byte("{}"), 0o600) }},
			{"peers cut off", func() error { return os.WriteFile(filepath.Join(own, peersName), []byte("{"), 0o600) }},
		} {
			if err := c.harm(); err != nil {
				t.Fatal(err)
			}
			var bad *DirError
			if err := startError(t, w, 1); !errors.As(err, &bad) || !strings.Contains(err.Error(), "new member") {
				t.Errorf("%s: %v; want a refusal that says how to come back", c.name, err)
			}
			os.RemoveAll(own)
			backup(t, keep, own)
		}
		// As the refusal says: moved away, it comes back as a new member.
		os.RemoveAll(own)
		w.start(1)
		w.within(5*time.Second, "all ready again", w.allReady)
		w.mustCommit(time.Second)
		w.check()
	})
}

// TestSnapshotsThatTheLogNeeds: where the log begins behind a snapshot, the node does not start without that snapshot.
func TestSnapshotsThatTheLogNeeds(t *testing.T) {
	dir := t.TempDir()
	virtual(t, func(t *testing.T) {
		w := durableWorld(t, dir)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		for range keepSnapshots { // beside the newest there is an older one, behind which the log has a gap
			for range 5 {
				w.mustCommit(time.Second)
			}
			c := w.procs[1].consensus.Load()
			rc := c.raft.ReloadableConfig()
			rc.TrailingLogs = 1
			if err := errors.Join(c.raft.ReloadConfig(rc), c.raft.Snapshot().Error()); err != nil {
				t.Fatal(err)
			}
		}
		w.kill(1)
		own, keep := filepath.Join(dir, "1"), filepath.Join(dir, "keep")
		backup(t, own, keep)
		states := filepath.Join(own, snapshotsName, "*", "state.bin")
		newest := func(do func(string) error) func() error {
			return func() error {
				files, err := filepath.Glob(states)
				slices.SortFunc(files, func(a, b string) int { return int(snapshotIndex(b)) - int(snapshotIndex(a)) })
				return errors.Join(err, do(files[0]))
			}
		}
		for _, c := range []struct {
			name string
			harm func() error
		}{
			{"all missing", func() error { return os.RemoveAll(filepath.Join(own, snapshotsName)) }},
			{"newest missing", newest(func(f string) error { return os.RemoveAll(filepath.Dir(f)) })},
			{"newest overwritten", newest(func(f string) error { return overwrite(f, 0) })},
			{"all overwritten", func() error { return each(states, func(f string) error { return overwrite(f, 0) }) }},
		} {
			if err := c.harm(); err != nil {
				t.Fatal(err)
			}
			var bad *DirError
			if err := startError(t, w, 1); !errors.As(err, &bad) || !strings.Contains(err.Error(), "new member") {
				t.Errorf("%s: %v; want a refusal that says how to come back", c.name, err)
			}
			os.RemoveAll(own)
			backup(t, keep, own)
		}
		w.start(1)
		w.within(5*time.Second, "all ready again", w.allReady)
		w.mustCommit(time.Second)
		w.check()
	})
}

// snapshotIndex is the index in the name of a snapshot's folder: term-index-time.
func snapshotIndex(file string) (index uint64) {
	var term uint64
	fmt.Sscanf(filepath.Base(filepath.Dir(file)), "%d-%d-", &term, &index)
	return index
}

func backup(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func TestADirectoryRestoredFromABackup(t *testing.T) {
	dir := t.TempDir()
	virtual(t, func(t *testing.T) {
		w := durableWorld(t, dir)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		own, keep := filepath.Join(dir, "1"), filepath.Join(dir, "keep")
		w.kill(1)
		backup(t, own, keep)
		w.start(1)
		w.within(5*time.Second, "all ready again", w.allReady)
		w.mustCommit(time.Second)
		w.kill(1)
		os.RemoveAll(own)
		backup(t, keep, own)
		p := w.start(1)
		select {
		case err := <-p.Failed():
			if !errors.Is(err, ErrStartsFell) {
				t.Errorf("failed with %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("a directory that has forgotten votes is taken for what it was\n%s", w.describe())
		}
		w.mustCommit(time.Second)
		// The others remember it across their own starts.
		w.kill(0)
		w.start(0)
		w.kill(1)
		os.RemoveAll(own)
		backup(t, keep, own)
		w.start(1)
		w.within(5*time.Second, "the rest is ready", func() bool { return w.ready(0) && w.ready(2) && !w.ready(1) })
		w.check()
	})
}

// TestAMajorityOfDirectoriesIsLost: who follows the advice to the letter gets a new cluster, also where FORM was auto.
func TestAMajorityOfDirectoriesIsLost(t *testing.T) {
	for _, form := range []string{"explicit", "auto"} {
		dir := t.TempDir()
		virtual(t, func(t *testing.T) {
			w := durableWorld(t, dir)
			inDir := w.edit
			w.edit = func(slot int, c *Config) { inDir(slot, c); c.Form = form }
			w.startAll()
			defer w.stopAll()
			if form == "explicit" {
				w.form()
			}
			w.within(5*time.Second, "all ready", w.allReady)
			w.stopAll()
			for _, slot := range []int{0, 1} {
				os.RemoveAll(filepath.Join(dir, fmt.Sprint(slot)))
			}
			w.startAll()
			wait(20 * time.Second)
			for slot, p := range w.procs {
				ok, why := p.Ready()
				if ok || !strings.Contains(why, "stop all nodes and move their data directories away, start them again") ||
					strings.Contains(why, "with FORM=explicit") != (form == "auto") {
					t.Errorf("FORM=%s, slot %d: ready %v, %q", form, slot, ok, why)
				}
			}
			w.stopAll()
			for slot := range w.procs {
				os.RemoveAll(filepath.Join(dir, fmt.Sprint(slot)))
			}
			form = "explicit"
			w.startAll()
			if _, err := w.procs[1].form(100, nil); err != nil {
				t.Fatal(err)
			}
			w.within(5*time.Second, "all ready again", w.allReady)
		})
	}
}

// TestAPromiseOutlivesItsProcess: with a data directory a promise is kept across starts, until it is abandoned.
func TestAPromiseOutlivesItsProcess(t *testing.T) {
	dir := t.TempDir()
	virtual(t, func(t *testing.T) {
		w := durableWorld(t, dir)
		w.startAll()
		defer w.stopAll()
		p := &promise{Cluster: newClusterID(), By: 2, Members: w.members, Terms: Terms{FirstToken: 1}}
		for _, q := range w.procs {
			p.Incs = append(p.Incs, q.inc)
		}
		if r := w.procs[1].answer(&question{Op: opPromise, Promise: p}); r.Error != "" {
			t.Fatal(r.Error)
		}
		w.kill(1)
		w.start(1)
		if _, err := w.procs[0].form(0, nil); err == nil || !strings.Contains(err.Error(), "--abandon") {
			t.Fatalf("init beside a promise: %v", err)
		}
		if err := w.procs[0].abandon(); err != nil {
			t.Fatal(err)
		}
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		if err := w.procs[0].abandon(); err == nil || !strings.Contains(err.Error(), "part of cluster") {
			t.Errorf("abandoning a cluster: %v", err)
		}
	})
}

// TestACoordinatorThatFellAsItBegan: its log is there, and nothing says yet that it is part of a cluster.
func TestACoordinatorThatFellAsItBegan(t *testing.T) {
	dir := t.TempDir()
	virtual(t, func(t *testing.T) {
		w := durableWorld(t, dir)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		id := w.procs[0].dir.id
		cluster := id.Cluster
		promised := &promise{Cluster: cluster, By: 0, Members: w.members, Terms: id.Terms}
		for _, q := range w.procs {
			promised.Incs = append(promised.Incs, q.inc)
		}
		w.kill(0)
		id.Formed, id.Cluster, id.Size, id.Promised = false, ClusterID{}, 0, promised
		if err := writeJSON(filepath.Join(dir, "0"), identityName, id); err != nil {
			t.Fatal(err)
		}
		w.start(0)
		if c, _, formed := w.procs[0].Identity(); !formed || ClusterID(c) != cluster {
			t.Fatalf("part of %x: %v", c, formed)
		}
		w.within(5*time.Second, "all ready again", w.allReady)
	})
}

// TestADiskThatHangs: a leader whose disk does not answer would lead for ever and commit nothing.
func TestADiskThatHangs(t *testing.T) {
	dir := t.TempDir()
	virtual(t, func(t *testing.T) {
		w := durableWorld(t, dir)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		l := w.leader()
		watch := l.consensus.Load().stores.stable.(*diskWatch)
		free := make(chan struct{})
		defer close(free)
		watch.test = func() error { <-free; return nil }
		l.Propose([]byte("hangs"), func() {})
		select {
		case <-l.Failed():
		case <-time.After(5 * time.Second):
			t.Fatal("a leader whose disk hangs goes on")
		}
		w.procs[l.slotNow()] = nil
		w.mustCommit(2 * time.Second)
		for slot, p := range w.procs {
			if p != nil && !w.ready(slot) {
				t.Errorf("slot %d is not ready\n%s", slot, w.describe())
			}
		}
		w.check()
		w.procs[l.slotNow()] = l
	})
}

func TestADiskThatFails(t *testing.T) {
	dir := t.TempDir()
	virtual(t, func(t *testing.T) {
		w := durableWorld(t, dir)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		f := w.procs[(w.leader().slotNow()+1)%3]
		full := errors.New("no space left")
		f.consensus.Load().stores.stable.(*diskWatch).test = func() error { return full }
		w.mustCommit(time.Second)
		select {
		case err := <-f.Failed():
			if !errors.Is(err, full) {
				t.Errorf("failed with %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("a node whose disk fails goes on")
		}
		w.mustCommit(time.Second)
		var _ raft.LogStore = f.consensus.Load().stores.log
	})
}

func TestTokenFile(t *testing.T) {
	dir := t.TempDir()
	open := func(first uint64) *TokenFile {
		t.Helper()
		f, err := OpenTokenFile(dir, first)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := open(100)
	if f.First() != 100 || f.Grace() != 0 || f.Starts() != 1 {
		t.Errorf("a first start: %d, %v, %d", f.First(), f.Grace(), f.Starts())
	}
	if _, err := OpenTokenFile(dir, 1); !errors.Is(err, ErrDirInUse) {
		t.Errorf("a second process: %v", err)
	}
	last := f.First()
	for token := f.First(); token < 5*tokenBlock; token += 1000 {
		if err := f.Reserve(token); err != nil {
			t.Fatal(err)
		}
		last = token
	}
	for _, lease := range []time.Duration{time.Second, 250 * time.Second, 5 * time.Second} {
		if err := f.Longest(lease); err != nil {
			t.Fatal(err)
		}
	}
	f.lock.Close() // as SIGKILL does
	f = open(1)
	if f.First() <= last || f.Grace() < 250*time.Second || f.Grace() > 300*time.Second || f.Starts() != 2 {
		t.Errorf("after a kill: first %d after %d, grace %v, starts %d", f.First(), last, f.Grace(), f.Starts())
	}
	next := f.First()
	f.Close()
	f = open(1)
	if f.First() <= next {
		t.Errorf("first %d after %d, though nothing says that it was not issued", f.First(), next)
	}
	f.Close()
	f = open(1 << 40)
	if f.First() != 1<<40 {
		t.Errorf("FIRST_TOKEN is higher: first %d", f.First())
	}
	if err := f.Reserve(1<<64 - 2); err != nil {
		t.Fatal(err)
	}
	f.Close()
	f = open(1)
	if f.First() != 1<<64-1 {
		t.Errorf("all issued: first %d", f.First())
	}
	f.Close()
	for _, bad := range []string{"", "{", `{"version":2,"starts":1}`, `{"version":1}`} {
		os.WriteFile(filepath.Join(dir, singleName), []byte(bad), 0o600)
		if _, err := OpenTokenFile(dir, 1); err == nil || !strings.Contains(err.Error(), "FIRST_TOKEN") ||
			strings.Count(err.Error(), singleName) != 1 {
			t.Errorf("%q: %v", bad, err)
		}
	}
	os.Remove(filepath.Join(dir, singleName))
	os.WriteFile(filepath.Join(dir, identityName), []byte("{}"), 0o600)
	if _, err := OpenTokenFile(dir, 1); !errors.Is(err, errClusterDir) {
		t.Errorf("a member's directory: %v", err)
	}
}

// TestAutoFormsByItself: with FORM=auto nobody is asked, and what an earlier attempt left behind is cleared; but the
// loss of a majority is not.
func TestAutoFormsByItself(t *testing.T) {
	for _, durable := range []bool{false, true} {
		dir := t.TempDir()
		virtual(t, func(t *testing.T) {
			w := newWorld(t, 3)
			w.edit = func(slot int, c *Config) {
				c.Form = "auto"
				if durable {
					c.DataDir = filepath.Join(dir, fmt.Sprint(slot))
				}
			}
			defer w.stopAll()
			w.start(1)
			w.start(2)
			wait(2 * time.Second)
			if r := w.procs[1].reg.now(); r.Active {
				t.Error("without slot 0 there is a cluster")
			}
			p := w.start(0)
			// A coordinator that fell when it had some of its promises.
			old := &promise{Cluster: newClusterID(), By: 0, Members: w.members, Terms: Terms{FirstToken: 1}}
			for _, q := range w.procs {
				old.Incs = append(old.Incs, q.inc)
			}
			w.procs[2].answer(&question{Op: opPromise, Promise: old})
			if durable {
				p.answer(&question{Op: opPromise, Promise: old})
			}
			w.kill(0)
			w.start(0)
			w.within(10*time.Second, "all ready", w.allReady)
			w.mustCommit(time.Second)
			if durable {
				return
			}
			survivor := w.leader().slotNow()
			for slot := range w.procs {
				if slot != survivor {
					w.kill(slot)
					w.start(slot)
				}
			}
			wait(10 * time.Second)
			for slot, p := range w.procs {
				if p.reg.now().Leading {
					t.Errorf("slot %d leads, though a majority has lost its memory", slot)
				}
			}
		})
	}
}
