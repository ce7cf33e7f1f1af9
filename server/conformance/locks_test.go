package conformance

import "testing"

// PROTOCOL.md section 3, the table of requests and key states, and section 4: on every wire as far as it can ask.
func TestRequestsAndKeyStates(t *testing.T) {
	t.Parallel()
	each(t, wires, keyStates)
}

var keyStates = []scene{
	{"a free key is granted", `
			a > A 1 5 5 k
			a < A 1 $x k`},
	{"tokens rise over all keys", `
			a > A 1 5 5 k
			a < A 1 $x k
			a > A 2 5 5 l
			a < A 2 $y l
			a > R 3 $x k
			a < R 3 $x k
			a > A 4 5 5 k
			a < A 4 $z k`},
	{"a held key queues and is handed over in the order of arrival", `
			a > A 1 9 9 k
			a < A 1 $a k
			b > A 2 9 9 k
			b sync
			c > A 3 9 9 k
			c sync
			b > A 4 9 9 k
			b sync
			a > R 5 $a k
			a < R 5 $a k
			b < A 2 $b k
			c sync
			b > R 6 $b k
			b < R 6 $b k
			c < A 3 $c k
			c > R 7 $c k
			c < R 7 $c k
			b < A 4 $d k`},
	{"a holder is not recognised", `
			a > A 1 9 9 k
			a < A 1 $a k
			a > A 2 1 9 k
			clock
			a < T 2 k in 0 1.1
			a sync`},
	{"releasing a key that is free", `
			a > A 1 9 9 k
			a < A 1 $x k
			a > R 2 $x k
			a < R 2 $x k
			a > R 3 $x k
			a < N 3 $x k`},
	{"a wait that runs out leaves the queue", `
			a > A 1 9 9 k
			a < A 1 $a k
			b > A 2 1 9 k
			b < T 2 k
			c > A 3 9 9 k
			c sync
			a > R 4 $a k
			a < R 4 $a k
			c < A 3 $c k
			b sync`},
	{"a connection that ends takes its waiters along", `
			a > A 1 9 9 k
			a < A 1 $a k
			b > A 2 9 9 k
			b sync
			c > A 3 9 9 k
			c sync
			b > cut
			d sync
			a > R 4 $a k
			a < R 4 $a k
			c < A 3 $c k`},
	{"a connection that ends keeps its locks until the lease ends", `
			a > A 1 9 2 k
			clock
			a < A 1 $a k
			a > cut
			b > A 2 9 9 k
			b < A 2 $b k in 1.98 2.06`},
	{"a keep-alive frame asks for nothing", `
			z > A 1 9 9 k
			z < A 1 $a k
			z sync`},
	{"many acquires of one connection for one key are granted in their order", `
			a > A 1 9 9 k
			a < A 1 $a k
			a > A 2 9 9 k
			a > A 3 9 9 k
			a > A 4 9 9 k
			a > R 5 $a k
			a < R 5 $a k
			a < A 2 $b k
			a > R 6 $b k
			a < R 6 $b k
			a < A 3 $c k
			a > R 7 $c k
			a < R 7 $c k
			a < A 4 $d k`},
}

// The rows that need a wait of 0 as one attempt.
func TestImmediateAttempts(t *testing.T) {
	t.Parallel()
	each(t, []string{"v1", "3"}, []scene{
		{"a free key is granted at once", `
			a > A 1 0 5 k
			a < A 1 $x k`},
		{"a held key is refused at once", `
			a > A 1 0 5 k
			a < A 1 $x k
			clock
			b > A 2 0 5 k
			b < T 2 k in 0 0.05
			a > A 3 0 5 k
			a < T 3 k`},
		{"an attempt does not stand before those who wait", `
			a > A 1 0 9 k
			a < A 1 $a k
			b > A 2 9 9 k
			b sync
			c > A 3 0 9 k
			c < T 3 k
			a > R 4 $a k
			a < R 4 $a k
			b < A 2 $b k
			c > A 5 0 9 k
			c < T 5 k`},
		{"requests of one connection take effect in their order", `
			a > A 1 0 9 k
			a > A 2 0 9 k
			a > A 3 0 9 l
			a < { A 1 $x k ; T 2 k ; A 3 $y l }`},
	})
}

// The rows that need a token in the release.
func TestReleaseByToken(t *testing.T) {
	t.Parallel()
	each(t, []string{"v1", "3", "0.3"}, []scene{
		{"on any connection", `
			a > A 1 9 9 k
			a < A 1 $a k
			b > A 2 9 9 k
			b sync
			c > R 3 $a k
			c < R 3 $a k
			b < A 2 $b k
			a sync`},
		{"a foreign token does nothing", `
			a > A 1 9 9 k
			a < A 1 $a k
			a > A 2 9 9 l
			a < A 2 $l l
			b > R 3 $l k
			b < N 3 $l k
			b > R 4 18446744073709551615 k
			b < N 4 18446744073709551615 k
			b > R 5 $a never
			b < N 5 $a never
			b > R 6 $a k
			b < R 6 $a k
			b > R 7 $l l
			b < R 7 $l l`},
		{"a late release misses the next holder", `
			a > A 1 9 1 k
			a < A 1 $a k
			b > A 2 9 9 k
			b < A 2 $b k
			a > R 3 $a k
			a < N 3 $a k
			b > R 4 $b k
			b < R 4 $b k`},
		{"acquire and release of one key keep their order behind a full pipe", `
			a > A 1 9 9 k
			a < A 1 $a k
			a > R 2 $a k
			a > A 3 9 9 k
			a > R 4 $a k
			a < { R 2 $a k ; A 3 $b k ; N 4 $a k }`},
	})
	each(t, []string{"v1", "0.3"}, []scene{
		{"token 0 holds nothing", `
			a > A 1 9 9 k
			a < A 1 $a k
			a > R 2 0 k
			a < N 2 0 k`},
	})
}

// One set of locks and one token counter for all wires, WIRES.md section 1.
func TestWiresShareTheirLocks(t *testing.T) {
	t.Parallel()
	each(t, []string{"v1"}, sharedLocks)
}

var sharedLocks = []scene{
	{"a holder on one wire is a holder on all", `
			a = v1
			b = 3
			c = 0.3
			d = 0.1
			a > A 1 9 20 k
			a < A 1 $a k
			b > A 2 30 20 k
			b sync
			c > A 3 30 20 k
			c sync
			d > A 4 30 20 k
			d sync
			e > A 5 0 20 k
			e < T 5 k
			b > R 6 $a k
			b < R 6 $a k
			b < A 2 $b k
			c > R 7 $b k
			c < R 7 $b k
			c < A 3 $c k
			a > R 8 $c k
			a < R 8 $c k
			d < A 4 $d k
			a > R 9 $d k
			a < R 9 $d k`},
	{"a set of two is not released by v1 and 0.3", `
			a = 3
			b = 0.3
			a > S 1 0 20 k l
			a < S 1 $s
			v > R 2 $s k
			v < N 2 $s k
			b > R 3 $s k
			b < N 3 $s k
			a > G 4 $s k l
			a < G 4 $s`},
	{"a set of one is a single lock", `
			a = 3
			a > S 1 0 20 k
			a < S 1 $s
			v > R 2 $s k
			v < R 2 $s k`},
	{"behind a waiting set queues who comes later, over any wire", `
			s = 3
			o = 0.1
			v > A 1 9 20 k
			v < A 1 $k k
			s > S 2 20 20 k l
			s sync
			w > A 3 0 20 l
			w < T 3 l
			w > A 4 9 20 l
			w sync
			o > A 5 9 20 l
			o sync
			v > R 6 $k k
			v < R 6 $k k
			s < S 2 $s
			w sync
			s > G 7 $s k l
			s < G 7 $s
			w < A 4 $w l
			w > R 8 $w l
			w < R 8 $w l
			o < A 5 $o l`},
}
