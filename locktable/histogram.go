package locktable

import (
	"math/bits"
	"time"
)

// HistogramBuckets is the number of buckets of a Histogram: bucket i counts durations below 2^i microseconds that no
// lower bucket counts; the last counts all longer ones (2^37 microseconds are 38 hours).
const HistogramBuckets = 39

// Histogram counts durations. The zero value is empty. It belongs to one goroutine; copy it to hand it on.
type Histogram struct {
	Buckets [HistogramBuckets]uint64
	Sum     time.Duration
}

// Observe counts d.
func (h *Histogram) Observe(d time.Duration) {
	h.Buckets[min(bits.Len64(uint64(max(d, 0)/time.Microsecond)), HistogramBuckets-1)]++
	h.Sum += d
}
