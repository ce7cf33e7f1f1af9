package raftglue

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func virtual(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestFormingAndCommitting(t *testing.T) {
	for _, size := range []int{3, 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				w := newWorld(t, size)
				w.startAll()
				defer w.stopAll()
				wait(time.Second)
				for slot := range w.procs {
					if ok, why := w.procs[slot].Ready(); ok || !strings.Contains(why, "ticketing init") {
						t.Errorf("slot %d before init: ready %v, %q", slot, ok, why)
					}
				}
				w.form()
				w.within(3*time.Second, "all ready", w.allReady)
				for range 50 {
					w.mustCommit(time.Second)
				}
				w.within(time.Second, "everybody has applied all", func() bool {
					for _, p := range w.procs {
						if len(p.reg.all()) != len(w.acked) {
							return false
						}
					}
					return true
				})
				w.check()
				l := w.leader()
				for slot, p := range w.procs {
					want := LeaderInfo{true, l.slotNow(), "v1=" + w.members[l.slotNow()]}
					if r := p.reg.now(); r.Leader != want || !r.Active {
						t.Errorf("slot %d: role %+v, want leader %+v", slot, r, want)
					}
				}
				if !l.HeardMajority() {
					t.Error("the leader has not heard from a majority")
				}
			})
		})
	}
}

func TestRollingRestart(t *testing.T) {
	for _, size := range []int{3, 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				w := newWorld(t, size)
				w.startAll()
				defer w.stopAll()
				w.form()
				w.within(3*time.Second, "all ready", w.allReady)
				for round := range 30 {
					slot := round % size
					if round%2 == 0 {
						slot = w.leader().slotNow()
					}
					w.mustCommit(2 * time.Second)
					w.kill(slot)
					w.mustCommit(3 * time.Second)
					w.start(slot)
					w.within(10*time.Second, fmt.Sprintf("round %d: slot %d is back", round, slot), w.allReady)
					w.check()
				}
			})
		})
	}
}
