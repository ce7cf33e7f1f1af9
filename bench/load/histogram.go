package load

import (
	"math/bits"
	"time"
)

const (
	subBits = 6 // 64 steps a power of two: a step is at most 1.6 % of the value
	steps   = 1 << subBits
)

// histogram counts durations; the zero value is empty.
type histogram struct {
	counts [64 * steps]uint64
	total  uint64
	max    time.Duration
}

// add counts d once.
func (h *histogram) add(d time.Duration) {
	d = max(d, 1)
	h.max = max(h.max, d)
	h.counts[step(uint64(d))]++
	h.total++
}

func step(v uint64) int {
	exp := bits.Len64(v) - 1
	if exp < subBits {
		return int(v)
	}
	return (exp-subBits+1)*steps + int(v>>(exp-subBits)) - steps
}

// quantile is the middle of the step in which the q-th part (0..1) of all durations ends, in microseconds; 0 if nothing
// was counted.
func (h *histogram) quantile(q float64) float64 {
	rank := uint64(q * float64(h.total))
	var seen uint64
	for i, n := range h.counts {
		if seen += n; seen > rank || seen == h.total && n > 0 {
			return middle(i) / 1e3
		}
	}
	return 0
}

func middle(i int) float64 {
	if i < steps {
		return float64(i)
	}
	shift := i/steps - 1
	return (float64(i%steps+steps) + 0.5) * float64(uint64(1)<<shift)
}

func (h *histogram) reset() { *h = histogram{} }
