package conformance

import "testing"

// WIRES.md section 4: every row of the table of an acquire whose key and owner were seen before.
func TestOneAcquirePerOwnerAndKey(t *testing.T) {
	t.Parallel()
	each(t, []string{"0.3"}, sameOwner)
}

var sameOwner = []scene{
	{"holds the key: the same token, on any connection, and the lease is not renewed", `
			a > A 7 9 2 k
			clock
			a < A 7 $a k
			b > A 7 9 60 k
			b < A 7 $a k
			a > A 7 9 60 k
			a < A 7 $a k
			c > A 8 30 9 k
			c < A 8 $c k in 1.98 2.06`},
	{"sent again before the first was answered: an answer to each", `
			a > A 7 9 9 k
			a > A 7 9 9 k
			a > A 7 9 9 k
			a < A 7 $a k
			a < A 7 $a k
			a < A 7 $a k
			a > R 0 $a k
			a < R 0 $a k`},
	{"released: a new acquire", `
			a > A 7 9 9 k
			a < A 7 $a k
			a > R 0 $a k
			a < R 0 $a k
			b > A 7 9 9 k
			b < A 7 $b k
			b > R 0 $a k
			b < N 0 $a k`},
	{"expired: a new acquire", `
			a > A 7 9 1 k
			a < A 7 $a k
			c > A 8 9 1 k
			c < A 8 $c k
			a > A 7 9 9 k
			a < A 7 $b k`},
	{"timed out: a new acquire", `
			a > A 1 9 30 k
			a < A 1 $a k
			b > A 7 1 9 k
			b < T 7 k
			b > A 7 9 9 k
			b sync
			a > R 0 $a k
			a < R 0 $a k
			b < A 7 $b k`},
	{"waits: the copy has no place of its own, and both are answered", `
			a > A 1 9 30 k
			a < A 1 $a k
			b > A 7 20 9 k
			b sync
			c > A 8 20 9 k
			c sync
			d > A 7 20 9 k
			d sync
			a > R 0 $a k
			a < R 0 $a k
			b < A 7 $b k
			d < A 7 $b k
			d > R 0 $b k
			d < R 0 $b k
			c < A 8 $c k
			b sync`},
	{"waits: leaves the queue only when its last connection has ended", `
			a > A 1 9 30 k
			a < A 1 $a k
			b > A 7 20 9 k
			b sync
			d > A 7 20 9 k
			d sync
			b > cut
			c > A 8 20 9 k
			c sync
			a > R 0 $a k
			a < R 0 $a k
			d < A 7 $b k`},
	{"waits: when all have ended the place is lost", `
			a > A 1 9 30 k
			a < A 1 $a k
			b > A 7 20 9 k
			b sync
			d > A 7 20 9 k
			d sync
			b > cut
			d > rst
			e > A 8 20 9 k
			e sync
			a > R 0 $a k
			a < R 0 $a k
			e < A 8 $e k`},
	{"waits: lease and wait are those of the newest copy", `
			a > A 1 9 30 k
			a < A 1 $a k
			b > A 7 60 9 k
			b sync
			d sync
			clock
			d > A 7 1 9 k
			d < T 7 k in 1 1.05
			b < T 7 k
			a > R 0 $a k
			a < R 0 $a k
			b sync`},
	{"waits: the newest copy may wait longer", `
			a > A 1 9 30 k
			a < A 1 $a k
			b > A 7 1 9 k
			b sync
			clock
			d > A 7 3 9 k
			d < T 7 k in 3 3.05
			b < T 7 k`},
	{"the lease of the newest copy", `
			a > A 1 9 30 k
			a < A 1 $a k
			b > A 7 20 30 k
			b sync
			b > A 7 20 1 k
			b sync
			c > A 8 20 9 k
			c sync
			clock
			a > R 0 $a k
			a < R 0 $a k
			b < A 7 $b k
			c < A 8 $c k in 1 1.06`},
	{"owner 0 is nobody", `
			a > A 0 9 30 k
			a < A 0 $a k
			b > A 0 1 9 k
			b < T 0 k
			c > A 0 9 9 k
			c > A 0 9 9 k
			c sync
			a > R 0 $a k
			a < R 0 $a k
			c < A 0 $c k
			c sync
			c > R 0 $c k
			c < R 0 $c k
			c < A 0 $d k`},
	{"another key is another acquire", `
			a > A 7 9 30 k
			a < A 7 $a k
			a > A 7 9 30 l
			a < A 7 $b l`},
	{"v1's owners are never matched", `
			v = v1
			v > A 7 0 30 k
			v < A 7 $v k
			a > A 7 1 9 k
			a < T 7 k
			a > A 7 9 9 l
			a < A 7 $l l
			v > A 7 0 9 l
			v < T 7 l
			w = v1
			w > A 9 9 9 k
			w sync
			a > A 9 9 9 k
			a sync
			v > R 7 $v k
			v < R 7 $v k
			w < A 9 $w k
			a sync`},
	{"released before the copy comes, in one write", `
			a > A 7 9 30 k
			a < A 7 $a k
			a > R 0 $a k
			a > A 7 9 30 k
			a < { R 0 $a k ; A 7 $b k }`},
}

// WIRES.md section 5.2: the answers to one connection's acquires of one key come in the order of the acquires.
func TestAnswersInOrder(t *testing.T) {
	t.Parallel()
	each(t, []string{"0.1"}, []scene{
		{"a T that is due waits for the older acquire", `
			a > A 0 9 30 k
			a < A 0 $a k
			b > A 0 3 9 k
			b > A 0 1 9 k
			clock
			b < T 0 k in 2.9 3.06
			b < T 0 k
			b sync`},
		{"a T that is due waits for the older grant, whose key it does not get", `
			a > A 0 9 30 k
			a < A 0 $a k
			b > A 0 0 9 k
			b > A 0 1 9 k
			b > A 0 2 9 k
			b < quiet 2.3
			c > A 0 9 9 k
			c sync
			a > R 0 0 k
			a < R 0 0 k
			b < A 0 $b k
			b < T 0 k
			b < T 0 k
			b > R 0 0 k
			b < R 0 0 k
			c < A 0 $c k`},
		{"other keys and connections are not held back", `
			a > A 0 9 30 k
			a > A 0 9 30 l
			a < A 0 $a k
			a < A 0 $l l
			c sync
			clock
			b > A 0 0 9 k
			b > A 0 1 9 l
			c > A 0 1 9 k
			b < T 0 l in 0.9 1.1
			c < T 0 k in 0.9 1.1`},
		{"the waiter leaves the queue on time all the same", `
			a > A 0 9 30 k
			a < A 0 $a k
			b > A 0 0 9 k
			b > A 0 1 9 k
			b sync
			c > A 0 0 9 k
			c < quiet 1.3
			a > R 0 0 k
			a < R 0 0 k
			b < A 0 $b k
			b < T 0 k
			b > R 0 0 k
			b < R 0 0 k
			c < A 0 $c k`},
	})
}

// WIRES.md section 5.3: release by key.
func TestReleaseByKey(t *testing.T) {
	t.Parallel()
	each(t, []string{"0.1"}, byKey)
}

var byKey = []scene{
	{"on the connection of the grant", `
			a > A 0 9 9 k
			a < A 0 $a k
			a > R 0 0 k
			a < R 0 0 k
			a > R 0 0 k
			a < N 0 0 k`},
	{"on another connection while that one lives", `
			a > A 0 9 9 k
			a < A 0 $a k
			b > R 0 0 k
			b < N 0 0 k
			a > R 0 0 k
			a < R 0 0 k`},
	{"on another connection when that one has ended", `
			a > A 0 9 9 k
			a < A 0 $a k
			a > "X"
			a < E bad_op
			a < end
			a > cut
			b > A 0 9 9 k
			b sync
			c > R 0 0 k
			c < R 0 0 k
			b < A 0 $b k`},
	{"a holder of another wire", `
			v = v1
			x = 3
			y = 0.3
			v > A 1 9 9 k
			v < A 1 $v k
			x > A 1 9 9 l
			x < A 1 $x l
			y > A 1 9 9 m
			y < A 1 $y m
			v > cut
			a > R 0 0 k
			a < N 0 0 k
			a > R 0 0 l
			a < N 0 0 l
			a > R 0 0 m
			a < N 0 0 m`},
	{"a late release misses a holder whose connection lives", `
			a > A 0 9 1 k
			a < A 0 $a k
			b > A 0 9 9 k
			b < A 0 $b k
			a > R 0 0 k
			a < N 0 0 k
			b > R 0 0 k
			b < R 0 0 k`},
	{"v1 releases by token what 0.1 got", `
			v = v1
			a > A 0 9 9 k
			a < A 0 $a k
			v > R 0 $a k
			v < R 0 $a k`},
	{"a key that nobody holds", `
			a > R 0 0 k
			a < N 0 0 k`},
	{"acquire and release of one write keep their order", `
			a > A 0 9 9 k
			a > R 0 0 k
			a > A 0 9 9 k
			a > R 0 0 k
			a < { A 0 $a k ; R 0 0 k ; A 0 $b k ; R 0 0 k }`},
}
