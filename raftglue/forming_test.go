package raftglue

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestInitsAtOnce has operators, and FORM=auto, form clusters at the same moments on different nodes: in the end there
// is one, or none and nothing in the way of the next try.
func TestInitsAtOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	formed := 0
	for round := range 60 {
		rnd := rand.New(rand.NewPCG(seed, uint64(round)))
		virtual(t, func(t *testing.T) {
			w := newWorld(t, 3+2*(round%2))
			auto := round%3 == 0
			w.edit = func(_ int, c *Config) {
				if auto {
					c.Form = "auto"
				}
			}
			w.startAll()
			defer w.stopAll()
			var inits sync.WaitGroup
			for range 2 + rnd.IntN(2) {
				slot, at := rnd.IntN(len(w.procs)), time.Duration(rnd.IntN(120))*time.Millisecond
				inits.Go(func() { // ends with its init
					wait(at)
					w.procs[slot].form(0, nil)
				})
			}
			inits.Wait()
			clusters := w.clusters()
			if len(clusters) > 1 {
				t.Fatalf("round %d: clusters %v", round, clusters)
			}
			if len(clusters) == 1 {
				formed++
			} else if _, err := w.procs[rnd.IntN(len(w.procs))].form(0, nil); err != nil && !auto {
				t.Fatalf("round %d: nobody has formed a cluster, and the next try: %v", round, err)
			}
			w.within(10*time.Second, fmt.Sprintf("round %d: all ready", round), w.allReady)
			w.mustCommit(time.Second)
			if got := w.clusters(); len(got) != 1 {
				t.Fatalf("round %d: clusters %v", round, got)
			}
			w.check()
		})
	}
	if formed == 0 {
		t.Error("never did one of the inits that met succeed")
	}
}

// TestANodeWithAnotherPeerToken: init on any node, and the node's own reason, say what is wrong.
func TestANodeWithAnotherPeerToken(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.edit = func(slot int, c *Config) {
			if slot == 2 {
				c.PeerToken = []byte("another token")
			}
		}
		w.startAll()
		defer w.stopAll()
		const advice = "give all nodes the same PEER_TOKEN"
		for slot, p := range w.procs {
			if _, err := p.form(0, nil); err == nil || !strings.Contains(err.Error(), advice) {
				t.Errorf("init on slot %d: %v", slot, err)
			}
			if err := p.abandon(); err == nil || !strings.Contains(err.Error(), advice) {
				t.Errorf("abandon on slot %d: %v", slot, err)
			}
		}
		wait(2 * time.Second)
		for slot, p := range w.procs {
			if ok, why := p.Ready(); ok || !strings.Contains(why, advice) {
				t.Errorf("slot %d: ready %v, %q", slot, ok, why)
			}
		}
		w.kill(1) // a member that is silent besides changes nothing for the other two
		if _, err := w.procs[0].form(0, nil); err == nil || !strings.Contains(err.Error(), advice) {
			t.Errorf("init with a member down: %v", err)
		}
	})
}

// TestAListOfAnotherLength: a member that lists five where the cluster was formed of three is taken in, and says so.
func TestAListOfAnotherLength(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.startAll()
		defer w.stopAll()
		w.form()
		w.within(3*time.Second, "all ready", w.allReady)
		w.kill(2)
		var log bytes.Buffer
		w.edit = func(slot int, c *Config) {
			c.Members = append(slices.Clone(w.members), "10.0.0.3:5225", "10.0.0.4:5225")
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
		}
		w.start(2)
		w.within(5*time.Second, "all ready again", w.allReady)
		w.kill(2) // nobody writes to the log any more
		if !strings.Contains(log.String(), "CLUSTER differs from the table of members") {
			t.Errorf("it says nothing of its list:\n%s", log.String())
		}
	})
}

func (w *world) clusters() (out map[ClusterID]int) {
	out = map[ClusterID]int{}
	for _, p := range w.procs {
		if c, _, formed := p.Identity(); formed {
			out[ClusterID(c)]++
		}
	}
	return out
}
