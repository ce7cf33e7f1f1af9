package locktable

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

type alarm struct {
	tm timer[*alarm]
	at int64
}

func (a *alarm) timer() *timer[*alarm] { return &a.tm }

// TestWheelAgainstList turns a wheel wherever it asks to be turned and compares what fires with a plain list: everything
// at its very tick, nothing early, nothing forgotten, however far ahead it was scheduled.
func TestWheelAgainstList(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	spans := []int64{1, 3, 64, 65, 4096, 300_000, 20_000_000, 1 << 31, 1 << 36}
	for range 50 {
		w := &wheel[*alarm]{tick: r.Int64N(1 << 40)}
		var list []*alarm
		now := w.tick
		for range 400 {
			switch x := r.IntN(10); {
			case x < 5:
				a := &alarm{at: now + 1 + r.Int64N(spans[r.IntN(len(spans))])}
				w.schedule(a, a.at)
				list = append(list, a)
			case x < 6 && len(list) > 0:
				i := r.IntN(len(list))
				w.cancel(list[i])
				if list[i].tm.linked() {
					t.Fatal("still linked after cancel")
				}
				list = append(list[:i], list[i+1:]...)
			default:
				to := now + r.Int64N(spans[r.IntN(len(spans))])
				var err error
				if list, err = turnTo(w, to, list); err != nil {
					t.Fatal(err)
				}
				now = to
			}
		}
		for len(list) > 0 {
			before := len(list)
			at := list[0].at
			for _, a := range list {
				at = min(at, a.at)
			}
			var err error
			if list, err = turnTo(w, at, list); err != nil || len(list) >= before {
				t.Fatalf("nothing fires at %d (%v)", at, err)
			}
		}
		if got := w.next(); got != never {
			t.Fatalf("an empty wheel wants to be turned at %d", got)
		}
	}
}

// turnTo fires what is due until then, and returns the rest of the list.
func turnTo(w *wheel[*alarm], to int64, list []*alarm) ([]*alarm, error) {
	for turns := 0; w.next() <= to; turns++ {
		next := w.next()
		for _, a := range list {
			if a.at < next {
				return nil, fmt.Errorf("the wheel sleeps until %d, an alarm is due at %d", next, a.at)
			}
		}
		if next <= w.tick || turns > 100_000 {
			return nil, fmt.Errorf("the wheel stands still at %d", next)
		}
		w.turn(next)
		for a, ok := w.due(); ok; a, ok = w.due() {
			if a.at != next {
				return nil, fmt.Errorf("an alarm due at %d fires at %d", a.at, next)
			}
			for i := range list {
				if list[i] == a {
					list = append(list[:i:i], list[i+1:]...)
					break
				}
			}
		}
		for _, a := range list {
			if a.at == next {
				return nil, fmt.Errorf("an alarm due at %d does not fire", next)
			}
		}
	}
	w.tick = max(w.tick, to)
	return list, nil
}

// TestIndexAgainstMap inserts and removes keys whose hashes collide on purpose.
func TestIndexAgainstMap(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	x := newIndex()
	want := map[string]*key{}
	hash := func(name []byte) uint64 { return uint64(name[1]&3)<<56 | uint64(name[2])<<3&0x3f }
	for step := range 200_000 {
		name := []byte{3, byte(r.IntN(256)), byte(r.IntN(256)), 'x'}
		if step/20_000%2 == 1 && r.IntN(3) > 0 { // ebb and flow
			for n := range want {
				name = []byte(n)
				break
			}
		}
		k := want[string(name)]
		if got := x.find(name, hash(name)); got != k {
			t.Fatalf("step %d: find %x got %p, want %p", step, name, got, k)
		}
		if k == nil && len(want) < 3000 {
			k = &key{name: name, hash: hash(name)}
			want[string(name)] = k
			x.insert(k, k.hash)
		} else if k != nil {
			x.remove(k, k.hash)
			delete(want, string(name))
		}
		if x.count != len(want) {
			t.Fatalf("step %d: got %d keys, want %d", step, x.count, len(want))
		}
	}
	n := 0
	x.each(func(k *key) {
		if n++; want[string(k.name)] != k {
			t.Fatalf("each gives %x", k.name)
		}
	})
	if n != len(want) {
		t.Fatalf("each gives %d keys, want %d", n, len(want))
	}
}

// TestGateMoves is PROTOCOL.md section 5 for every small limit: closed from 90 % (rounded down, at least 1), open again
// below 75 % and below that mark.
func TestGateMoves(t *testing.T) {
	for limit := 1; limit <= 200; limit++ {
		mark := max(1, limit*9/10)
		g := NewGate(limit)
		for use := 0; use <= limit; use++ {
			g.Use(use)
			if got, want := g.Closed(), use >= mark; got != want {
				t.Fatalf("limit %d, rising to %d: closed %v, want %v", limit, use, got, want)
			}
		}
		for use := limit; use >= 0; use-- {
			g.Use(use)
			if got, want := g.Closed(), !(use*100 < limit*75 && use < mark); got != want {
				t.Fatalf("limit %d, falling to %d: closed %v, want %v", limit, use, got, want)
			}
		}
	}
}
