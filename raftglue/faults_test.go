package raftglue

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

func (w *world) isolate(slot int) {
	for other := range w.procs {
		if other != slot {
			w.net.cut(hostOf(slot), hostOf(other))
			w.net.cut(hostOf(other), hostOf(slot))
		}
	}
}

// amnesia is the scenario of CLUSTER.md, nodes and identity: a follower lags, the leader is cut off with a record that the
// other follower has acknowledged, and that one starts anew, empty, on its old address. It says whether the two then
// have a leader of their own, who knows nothing of the record.
func amnesia(t *testing.T, edit func(int, *Config)) (twoLeaders bool) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.edit = edit
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		l := w.leader().slotNow()
		lags, restarts := (l+1)%3, (l+2)%3
		w.isolate(lags)
		if err := w.procs[l].propose("granted", time.Second); err != nil {
			t.Fatalf("proposing: %v", err)
		}
		w.isolate(l)
		w.kill(restarts)
		w.net.set(hostOf(lags), hostOf(restarts), false)
		w.net.set(hostOf(restarts), hostOf(lags), false)
		p := w.start(restarts)
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); wait(10 * time.Millisecond) {
			for _, q := range []*process{p, w.procs[lags]} {
				if q.reg.now().Leading && q.propose("granted again", time.Second) == nil {
					twoLeaders = true
					return
				}
			}
		}
		if ok, why := p.Ready(); ok {
			t.Errorf("the empty process says that it is ready (%s)", why)
		}
		// Healed, the cluster goes on with the record, and takes the empty process in.
		w.net.healAll()
		w.acked = append(w.acked, "granted")
		w.mustCommit(2 * time.Second)
		w.within(5*time.Second, "all ready again", w.allReady)
		w.check()
	})
	return twoLeaders
}

func TestAnEmptyProcessHasNoVote(t *testing.T) {
	if amnesia(t, nil) {
		t.Fatal("an empty process on the old address voted as the dead voter: two leaders")
	}
}

// TestTheFaultOfTakingAnyIncarnation shows that the scenario above notices what it is there for: a node that takes every
// connection to its address for meant, and so votes as the one that died there.
func TestTheFaultOfTakingAnyIncarnation(t *testing.T) {
	naive := func(n *Node, p *preface) verdict {
		meant := p.meant
		p.meant = n.inc
		if p.kind != kindRaft {
			return n.judge(p)
		}
		n.mu.Lock()
		if !n.formation.formed && n.formation.promised == nil {
			if n.formation.join(p.cluster, n.formation.slot, 3, Terms{FirstToken: 1}) == nil {
				n.enter(nil)
			}
		}
		n.mu.Unlock()
		v := n.judge(p)
		v.own = meant
		return v
	}
	if !amnesia(t, func(_ int, c *Config) { c.judge = naive }) {
		t.Fatal("without the check of incarnations there were no two leaders: the scenario proves nothing")
	}
}

// lockedLog is what a node has logged.
type lockedLog struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestAMajorityThatLostItsMemory(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		logs := make([]lockedLog, 3)
		w.edit = func(slot int, c *Config) { c.Log = slog.New(slog.NewTextHandler(&logs[slot], nil)) }
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		w.mustCommit(time.Second)
		survivor := w.leader().slotNow()
		for slot := range logs { // what was said while they formed
			logs[slot].forget()
		}
		for slot := range w.procs {
			if slot != survivor {
				w.kill(slot)
			}
		}
		for slot := range w.procs {
			if slot != survivor {
				w.start(slot)
			}
		}
		wait(time.Second) // not yet time to speak of it
		for slot, p := range w.procs {
			if ok, why := p.Ready(); ok || strings.Contains(why, "--first-token") {
				t.Errorf("slot %d, after a second: ready %v, %q", slot, ok, why)
			}
		}
		wait(20 * time.Second)
		for slot, p := range w.procs {
			if r := p.reg.now(); r.Leading {
				t.Errorf("slot %d leads", slot)
			}
			ok, why := p.Ready()
			if ok || !strings.Contains(why, "--first-token") {
				t.Errorf("slot %d: ready %v, %q; want the way to a new cluster", slot, ok, why)
			}
			if n := strings.Count(logs[slot].String(), "--first-token"); n != 1 {
				t.Errorf("slot %d: the log says %d times how to form a new cluster, want once: %s", slot, n, logs[slot].String())
			}
			if err := p.propose("never", time.Second); err != errRefused {
				t.Errorf("slot %d: proposing: %v", slot, err)
			}
		}
		if _, err := w.procs[(survivor+1)%3].form(100, nil); err == nil {
			t.Error("init formed a cluster although a member of one lives")
		}
		// What the advice says: stop all, start all, init.
		w.stopAll()
		w.startAll()
		wait(time.Second)
		if _, err := w.procs[1].form(100, nil); err != nil {
			t.Fatalf("init of the new cluster: %v", err)
		}
		w.within(3*time.Second, "all ready", w.allReady)
		for slot, p := range w.procs {
			if first, grace := p.Terms(); first != 100 || grace != 250*time.Second {
				t.Errorf("slot %d: first token %d, grace %v", slot, first, grace)
			}
		}
	})
}

// TestANewLeaderTellsWhoIsDead: also of a member that it has never heard, such as the leader before it.
func TestANewLeaderTellsWhoIsDead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		first := w.leader()
		dead := first.slotNow()
		w.kill(dead)
		w.within(5*time.Second, "a new leader", func() bool { return w.leader() != nil })
		wait(2 * time.Second)
		for _, m := range w.leader().Status().Members {
			if !m.Seen || m.Live == (m.Slot == dead) || m.Slot == dead && m.SinceAnswer != -1 {
				t.Errorf("slot %d is dead, and the leader says %+v", dead, m)
			}
		}
		// In the next term it knows nothing of whom it has not asked in that term.
		g := &w.leader().gate
		g.lost()
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.sights) != 0 {
			t.Errorf("after the term: %v", g.sights)
		}
	})
}

func TestAHealedFollowerCatchesUpAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		slot := (w.leader().slotNow() + 1) % 3
		w.isolate(slot)
		for range 120 {
			w.mustCommit(time.Second)
			wait(500 * time.Millisecond)
		}
		w.net.healAll()
		start := time.Now()
		w.within(5*time.Second, "caught up", func() bool { return len(w.procs[slot].reg.all()) == len(w.acked) })
		if took := time.Since(start); took > time.Second {
			t.Errorf("catching up after a minute's isolation took %v", took)
		}
		w.check()
	})
}

func TestAPausedLeaderHasHeardFromNobody(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		l := w.leader()
		c := l.consensus.Load()
		w.mustCommit(time.Second)
		if !l.HeardMajority() {
			t.Error("the leader has committed, and says that it has heard from no majority")
		}
		// It leads, as it believes, and what it heard last is an answer to what it sent longer ago than its lease.
		latest := c.heard.majority.Load()
		c.heard.majority.Store(int64(time.Since(c.heard.base) - testElection/2 - time.Millisecond))
		if l.HeardMajority() {
			t.Error("a leader that was stopped for longer than its lease says that it has heard from a majority")
		}
		c.heard.majority.Store(latest)
		w.isolate(l.slotNow())
		wait(testElection/2 + 30*time.Millisecond)
		if l.HeardMajority() {
			t.Error("cut off for longer than its lease, the leader says that it has heard from a majority")
		}
		w.within(time.Second, "it leads no longer", func() bool { return !l.reg.now().Leading })
		w.mustCommit(2 * time.Second)
		w.net.healAll()
		w.within(2*time.Second, "the old leader knows the new one", func() bool { return l.reg.now().Leader.Known })
		w.check()
	})
}

func TestTransfer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		for range 10 {
			l := w.leader()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			err := l.Transfer(ctx)
			cancel()
			if err != nil {
				t.Fatalf("transfer: %v", err)
			}
			w.within(100*time.Millisecond, "another leads", func() bool { n := w.leader(); return n != nil && n != l })
			w.mustCommit(time.Second)
		}
		// Cut off from all, it cannot hand over, and must not go on as a leader either.
		l := w.leader()
		w.isolate(l.slotNow())
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if err := l.Transfer(ctx); err == nil {
			t.Error("a leader that reaches nobody handed over")
		}
		select {
		case <-l.Failed():
		case <-time.After(time.Second):
			t.Error("a leader whose transfer failed goes on")
		}
		w.mustCommit(2 * time.Second)
		w.check()
	})
}

func TestReplacingAndRemovingMembers(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		w.mustCommit(time.Second)
		// Every slot moves to another host, one after the other, the leader's too, while all live.
		for slot := range 3 {
			old := w.procs[slot]
			to := fmt.Sprintf("10.0.1.%d:5225", slot)
			w.members[slot] = to
			p := w.start(slot)
			w.replace(slot, to, append([]*process{old}, w.procs...))
			w.within(3*time.Second, "the new one is ready", func() bool { ok, _ := p.Ready(); return ok })
			w.within(10*time.Second, "the old one knows", func() bool {
				ok, why := old.Ready()
				return !ok && strings.Contains(why, "removed") && old.Status().Role == "removed"
			})
			old.kill(t)
			w.mustCommit(2 * time.Second)
			w.check()
		}
		// Taken out by hand: two remain, and may not become one.
		gone := (w.leader().slotNow() + 1) % 3
		last := (w.leader().slotNow() + 2) % 3
		if no := w.remove(gone); no != "" {
			t.Fatalf("remove: %s", no)
		}
		w.kill(gone)
		w.mustCommit(time.Second)
		if no := w.remove(last); !strings.Contains(no, "too few") {
			t.Errorf("removing the second of three: %q", no)
		}
		w.start(gone)
		w.within(5*time.Second, "all ready again", w.allReady)
		if no := w.remove(4); !strings.Contains(no, "nobody") {
			t.Errorf("removing nobody: %q", no)
		}
		w.check()
	})
}

// A member that is taken out before it has looked round once does not ask to be taken in again.
func TestRemovedAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.startAll()
		defer w.stopAll()
		wait(time.Second)
		w.form()
		for w.leader() == nil {
			wait(time.Millisecond)
		}
		gone := (w.leader().slotNow() + 1) % 3
		// It still asked to be taken in when it was part of the cluster already.
		p := w.procs[gone]
		for _, s := range w.leader().consensus.Load().table() {
			if s.Inc == p.inc {
				if r := w.leader().answer(&question{Op: opJoin, Join: &s, Members: w.members}); r.Error != "" {
					t.Fatalf("join: %s", r.Error)
				}
			}
		}
		if no := w.remove(gone); no != "" {
			t.Fatalf("remove: %s", no)
		}
		w.within(5*time.Second, "it knows", func() bool { return w.procs[gone].Status().Role == "removed" })
		wait(5 * time.Second)
		if table := w.leader().consensus.Load().table(); len(table) != 2 {
			t.Errorf("%d members after one of three was removed: %v", len(table), table)
		}
	})
}

// remove asks the leader to take a slot's member out, again while it says so, and returns its refusal.
func (w *world) remove(slot int) (no string) {
	for range 100 {
		r := w.leader().answer(&question{Op: opRemove, Slot: slot})
		if no = r.Error; !r.Retry {
			return no
		}
		wait(20 * time.Millisecond)
	}
	return no
}

// replace asks as the command line does: whoever leads, again when told so.
func (w *world) replace(slot int, to string, procs []*process) {
	w.t.Helper()
	var last string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); wait(20 * time.Millisecond) {
		for _, p := range procs {
			if p == nil {
				continue
			}
			r := p.answer(&question{Op: opReplace, Slot: slot, Address: to})
			if r.Error == "" {
				return
			}
			last = r.Error
		}
	}
	w.t.Fatalf("replace %d %s: %s", slot, to, last)
}

func TestAStrangerIsNotTakenIn(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		old := w.members
		w.members = []string{old[0], "10.0.9.9:5225", old[2]}
		c, host, reg := w.config(1, "10.0.9.9:5225")
		w.members = old
		n, err := Start(c)
		if err != nil {
			t.Fatal(err)
		}
		p := &process{n, reg, host}
		defer p.kill(t)
		w.within(5*time.Second, "it says why", func() bool {
			_, why := p.Ready()
			return strings.Contains(why, "members replace")
		})
		// In the wrong order: its own place contradicts the table.
		w.kill(1)
		w.members = []string{old[1], old[0], old[2]}
		c, host, reg = w.config(0, old[1])
		w.members = old
		n, err = Start(c)
		if err != nil {
			t.Fatal(err)
		}
		q := &process{n, reg, host}
		defer q.kill(t)
		w.within(5*time.Second, "it says why", func() bool {
			_, why := q.Ready()
			return strings.Contains(why, "the table of members has")
		})
		w.mustCommit(time.Second)
	})
}

var (
	virtualHours = flag.Float64("virtual-hours", 0.05, "virtual time of TestFaultsInVirtualTime")
	virtualCalm  = flag.Duration("virtual-calm", 0, "longest time without a fault between two of TestFaultsInVirtualTime")
	virtualElect = flag.Duration("virtual-election", testElection, "election timeout in TestFaultsInVirtualTime")
	seedFlag     = flag.Uint64("seed", 0, "seed of TestFaultsInVirtualTime; 0: drawn")
)

// TestFaultsInVirtualTime lives through partitions, isolations and restarts, drawn from a seed, with a few proposers at
// work all the time, and checks that what was acknowledged stays, and that after each fault the cluster works again.
func TestFaultsInVirtualTime(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	for _, size := range []int{3, 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			virtual(t, func(t *testing.T) { faults(t, size, rand.New(rand.NewPCG(seed, uint64(size)))) })
		})
	}
}

func faults(t *testing.T, size int, rnd *rand.Rand) {
	w := newWorld(t, size)
	unit := *virtualElect / 200 // a millisecond where elections take 200
	w.edit = func(_ int, c *Config) { c.Election = *virtualElect }
	w.startAll()
	defer w.stopAll()
	w.form()
	w.within(3000*unit, "all ready", w.allReady)
	length := time.Duration(*virtualHours * float64(time.Hour) / 2) // two sizes
	rounds := 0
	for start := time.Now(); time.Since(start) < length; rounds++ {
		kind := rnd.IntN(6)
		what := w.fault(kind, rnd)
		for end := time.Now().Add(time.Duration(rnd.IntN(3000)) * unit); time.Now().Before(end); {
			w.commit(300 * unit)
			wait(time.Duration(rnd.IntN(50)) * unit)
		}
		w.net.healAll()
		for slot := range w.procs {
			if w.procs[slot] == nil {
				w.start(slot)
			}
		}
		w.mustCommit(5000 * unit)
		w.within(15000*unit, fmt.Sprintf("round %d: healed after %s", rounds, what), w.allReady)
		w.check()
		if *virtualCalm > 0 {
			wait(time.Duration(rnd.Int64N(int64(*virtualCalm))))
		}
	}
	t.Logf("%d faults, %d records", rounds, len(w.acked))
}

func (w *world) fault(kind int, rnd *rand.Rand) string {
	size := len(w.procs)
	at := rnd.IntN(size)
	if l := w.leader(); l != nil && rnd.IntN(2) == 0 {
		at = l.slotNow()
	}
	next := func(i int) int { return (at + i) % size }
	switch kind {
	case 0:
		w.kill(at)
		return fmt.Sprintf("kill %d", at)
	case 1:
		w.isolate(at)
		return fmt.Sprintf("isolate %d", at)
	case 2: // one way
		for other := range size {
			if other != at {
				w.net.cut(hostOf(at), hostOf(other))
			}
		}
		return fmt.Sprintf("nothing leaves %d", at)
	case 3: // the majority and the rest; one that sees both is next(0)
		for i := 1; i <= size/2; i++ {
			for j := size/2 + 1; j < size; j++ {
				w.net.cut(hostOf(next(i)), hostOf(next(j)))
				w.net.cut(hostOf(next(j)), hostOf(next(i)))
			}
		}
		return fmt.Sprintf("bridge at %d", at)
	case 4: // a ring: each sees its two neighbours
		for i := range size {
			for j := range size {
				if d := (i - j + size) % size; d != 1 && d != size-1 && i != j {
					w.net.cut(hostOf(i), hostOf(j))
				}
			}
		}
		if size == 3 {
			w.net.cut(hostOf(at), hostOf(next(1)))
		}
		return "ring"
	}
	// The amnesia scenario: lag, isolate the leader, restart.
	lag := next(1)
	w.isolate(lag)
	w.commit(300 * time.Millisecond)
	if size == 5 && rnd.IntN(2) == 0 {
		w.kill(next(2))
	} else if w.procs[at] != nil {
		w.isolate(at)
		w.kill(next(2))
		w.net.set(hostOf(lag), hostOf(next(2)), false)
		w.net.set(hostOf(next(2)), hostOf(lag), false)
		w.start(next(2))
	}
	return fmt.Sprintf("lag %d, isolate %d, restart %d", lag, at, next(2))
}
