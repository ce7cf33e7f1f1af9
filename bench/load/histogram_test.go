package load

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The histogram agrees with sorting, within its step.
func TestQuantile(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	var h histogram
	values := make([]float64, 20000)
	for i := range values {
		d := time.Duration(math.Exp(random.Float64() * 20))
		h.add(d)
		values[i] = float64(d) / 1e3
	}
	slices.Sort(values)
	for _, q := range []float64{0, 0.01, 0.5, 0.99, 0.999} {
		want := values[int(q*float64(len(values)))]
		if got := h.quantile(q); math.Abs(got-want) > want*0.016+0.001 {
			t.Errorf("seed %d: quantile(%v) = %v, want %v", seed, q, got, want)
		}
	}
	if h.reset(); h.quantile(0.5) != 0 || h.total != 0 {
		t.Errorf("after reset: %v of %d", h.quantile(0.5), h.total)
	}
}

// Steps follow each other without a hole and hold what is put into them.
func TestSteps(t *testing.T) {
	for v := uint64(1); v < 1<<40; v += 1 + v/200 {
		i := step(v)
		if m := middle(i); math.Abs(m-float64(v)) > float64(v)*0.016 {
			t.Fatalf("step(%d) = %d, middle %v", v, i, m)
		}
		if next := step(v + 1); next != i && next != i+1 {
			t.Fatalf("step(%d) = %d, step(%d) = %d", v, i, v+1, next)
		}
	}
}
