package conformance

import (
	"fmt"
	"testing"
)

// PROTOCOL.md section 3: on v1 and 3 T is due 100 ms before the wait is over, on 0.3 and 0.1 never before it; at most 50
// ms late. A lease never ends early, and at most 50 ms and 0.1 % late.
//
// Not parallel to other tests: they would be what it measures.
func TestWaitsAndLeases(t *testing.T) {
	for _, tls := range []bool{false, true} {
		in := common(t, tls)
		for _, w := range wires {
			early := 0.1
			if w == "0.3" || w == "0.1" {
				early = 0
			}
			for _, wait := range []int{1, 2, 5} {
				t.Run(fmt.Sprintf("wait %d/%s/tls=%v", wait, w, tls), func(t *testing.T) {
					t.Parallel()
					play(t, in, w, fmt.Sprintf(`
						a > A 1 9 30 k
						a < A 1 $a k
						b sync
						clock
						b > A 2 %d 9 k
						b < T 2 k in %f %f
						b sync`, wait, float64(wait)-early, float64(wait)-early+0.05))
				})
			}
			for _, lease := range []int{1, 3} {
				most := float64(lease)*1.001 + 0.05
				t.Run(fmt.Sprintf("lease %d/%s/tls=%v", lease, w, tls), func(t *testing.T) {
					t.Parallel()
					// The lease counts from the grant: never early from the send of the acquire either.
					play(t, in, w, fmt.Sprintf(`
						a sync
						b sync
						clock
						a > A 1 9 %d k
						a < A 1 $a k
						b > A 2 20 9 k
						b < A 2 $b k in %d %f`, lease, lease, most))
				})
				t.Run(fmt.Sprintf("lease %d of a hand-over/%s/tls=%v", lease, w, tls), func(t *testing.T) {
					t.Parallel()
					play(t, in, w, fmt.Sprintf(`
						a > A 1 9 30 k
						a < A 1 $a k
						b > A 2 20 %d k
						b sync
						c > A 3 20 9 k
						c sync
						clock
						a > R 4 $a k
						a < R 4 $a k
						b < A 2 $b k
						c < A 3 $c k in %d %f`, lease, lease, most))
				})
			}
		}
	}
}

// A wait of 0 on 0.3 and 0.1 has no end: it outlasts any time-out that the other wires know as the shortest.
func TestWaitForEver(t *testing.T) {
	t.Parallel()
	each(t, []string{"0.3", "0.1"}, []scene{{"wait 0", `
		a > A 1 9 30 k
		a < A 1 $a k
		b > A 2 0 9 k
		b < quiet 3
		a > R 3 $a k
		a < R 3 $a k
		b < A 2 $b k`}})
}

// Those whose waits end together all hear of it on time, and the wait of one does not disturb another's lease.
func TestManyWaitsEndTogether(t *testing.T) {
	t.Parallel()
	in := start(t, "MAX_WAITERS=4096")
	for _, w := range wires {
		t.Run(w, func(t *testing.T) {
			t.Parallel()
			const n = 500
			holder, c := in.dial(t, w), in.dial(t, w)
			holder.grant(1, 1, 60, "k"+w)
			due := map[string]int{}
			var all []byte
			for i := range uint64(n) {
				all = c.wire.AppendAcquire(all, 10+i, 1, 9, []byte("k"+w))
				due[string(refused(w, 'T', 10+i, "k"+w))]++
			}
			c.send(all)
			for range n {
				e := c.next()
				if due[string(e.raw)] == 0 {
					t.Fatalf("got %q (%v), want a T that is due", e.raw, e.err)
				}
				due[string(e.raw)]--
			}
		})
	}
}
