//go:build planted

package locktable_test

import (
	"fmt"
	"testing"

	"github.com/ticketing-go/ticketing/locktable"
)

// TestPlantedFaultsAreCaught plants each fault and wants the histories or the delayed world to notice it:
//
//	go test -tags planted -run Planted ./locktable
//
// Nothing else in this package means anything in such a build.
func TestPlantedFaultsAreCaught(t *testing.T) {
	seed := seedOf(t)
	for _, name := range []string{"double-grant", "early-expiry", "token-reused", "token-falls", "stale-release", "lost-release",
		"lost-waiter", "queue-jumped", "grant-after-no", "answer-before-commit", "clock-told-twice"} {
		t.Run(name, func(t *testing.T) {
			if err := locktable.Plant(name); err != nil {
				t.Fatal(err)
			}
			defer locktable.Plant("")
			byHistory, byWorld := caughtByHistory(seed), caughtByWorld(seed)
			t.Logf("histories: %s; world: %s", byHistory, byWorld)
			if byHistory == "" && byWorld == "" {
				t.Errorf("%s is caught by nothing", name)
			}
		})
	}
}

func caughtByHistory(seed uint64) string {
	for s := seed; s < seed+uint64(*histories); s++ {
		if lines, err := newMix(s, s%2 == 0).play(); err != nil {
			return fmt.Sprintf("history %d, line %d", s-seed+1, len(lines))
		}
	}
	return ""
}

func caughtByWorld(seed uint64) string {
	for s := seed; s < seed+uint64(*traces); s++ {
		rates, steps := makeTrace(s, *length)
		if _, broke, n := playTrace(rates, steps); broke != "" {
			return fmt.Sprintf("trace %d, step %d: %s", s-seed+1, n, broke)
		}
	}
	return ""
}
