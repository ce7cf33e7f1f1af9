package locktable_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var (
	traces = flag.Int("traces", 400, "random traces of the delayed world")
	length = flag.Int("steps", 150, "steps of a trace")
)

// makeTrace is the trace of a seed.
func makeTrace(seed uint64, length int) (rates []float64, steps []worldStep) {
	r := rand.New(rand.NewPCG(seed, 2))
	for range worldNodes + worldClients {
		rates = append(rates, float64(r.IntN(3)-1))
	}
	profile, total := worldProfiles[seed%uint64(len(worldProfiles))], 0
	weight := func(i int) int {
		if x, ok := profile[worldSteps[i].name]; ok {
			return x
		}
		return worldSteps[i].weight
	}
	for i := range worldSteps {
		total += weight(i)
	}
	for range length {
		x, i := r.IntN(total), 0
		for ; x >= weight(i); i++ {
			x -= weight(i)
		}
		steps = append(steps, worldStep{worldSteps[i].name, r.IntN(840), r.IntN(840)})
	}
	return rates, steps
}

// playTrace plays a trace and then lets the world calm down. broke is "" or what does not hold; n the steps played.
func playTrace(rates []float64, steps []worldStep) (w *world, broke string, n int) {
	w = newWorld(rates)
	defer func() {
		switch r := recover().(type) {
		case nil:
		case broken:
			broke = string(r)
		default:
			broke = fmt.Sprintf("panic: %v", r)
		}
	}()
	for _, s := range steps {
		n++
		for i := range worldSteps {
			if worldSteps[i].name == s.name {
				worldSteps[i].play(w, s.a, s.b)
			}
		}
	}
	n = len(steps)
	w.calm()
	return w, "", n
}

// shrinkTrace drops steps as long as the same invariant breaks.
func shrinkTrace(rates []float64, steps []worldStep, broke string) ([]worldStep, string) {
	for until := time.Now().Add(20 * time.Second); ; {
		before := len(steps)
		for size := max(1, len(steps)/2); size > 0; size /= 2 {
			for i := 0; i < len(steps) && time.Now().Before(until); {
				fewer := slices.Delete(slices.Clone(steps), i, min(i+size, len(steps)))
				if _, b, _ := playTrace(rates, fewer); b != "" && b[0] == broke[0] {
					steps, broke = fewer, b
				} else {
					i += size
				}
			}
		}
		if len(steps) == before || time.Now().After(until) {
			return steps, broke
		}
	}
}

// TestDelayedWorld plays random traces and looks for a broken invariant.
func TestDelayedWorld(t *testing.T) {
	seed := seedOf(t)
	counts := map[string]int{}
	for s := seed; s < seed+uint64(*traces); s++ {
		rates, steps := makeTrace(s, *length)
		w, broke, n := playTrace(rates, steps)
		if broke != "" {
			small, what := steps[:n], broke
			if *shrinking {
				small, what = shrinkTrace(rates, small, broke)
			}
			t.Fatalf("seed %d: %s\nrates %v, %d steps\n%v\n%s", s, broke, rates, len(small), small, what)
		}
		for k, v := range w.counts {
			counts[k] += v
		}
	}
	t.Logf("%d traces of %d steps: %v", *traces, *length, counts)
}
