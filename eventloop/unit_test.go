package eventloop

import (
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// A million nonces of each size are all different, and neighbours differ in half their bits.
func TestNonces(t *testing.T) {
	const n = 1 << 20
	shorts, longs := make(map[[6]byte]bool, n), make(map[[16]byte]bool, n)
	gen := newNonces()
	var before [6]byte
	var beforeLong [16]byte
	flips, flipsLong := 0, 0
	for range n {
		s, l := gen.next()
		shorts[s], longs[l] = true, true
		for i := range s {
			flips += bits.OnesCount8(s[i] ^ before[i])
		}
		for i := range l {
			flipsLong += bits.OnesCount8(l[i] ^ beforeLong[i])
		}
		before, beforeLong = s, l
	}
	if len(shorts) != n || len(longs) != n {
		t.Errorf("%d and %d different nonces of %d", len(shorts), len(longs), n)
	}
	// The standard deviation of these means is below 0.01 bits.
	if m := float64(flips) / n; m < 23.9 || m > 24.1 {
		t.Errorf("neighbours of 48 bits differ in %.3f bits, want 24", m)
	}
	if m := float64(flipsLong) / n; m < 63.9 || m > 64.1 {
		t.Errorf("neighbours of 128 bits differ in %.3f bits, want 64", m)
	}
	other, _ := newNonces().next()
	first, _ := newNonces().next()
	if other == first {
		t.Error("two keys give the same nonce")
	}
}

func TestPenalties(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.1")
	p := newPenalties()
	now := time.Hour
	var got []time.Duration
	for range 17 {
		p.failed(a, now)
		got = append(got, p.hold(a, now))
		now += time.Second
	}
	half := 500 * time.Millisecond
	want := []time.Duration{9: 0, 10: half, 11: 2 * half, 12: 4 * half, 13: 8 * half, 14: 16 * half, 15: 16 * half, 16: 16 * half}
	if !slices.Equal(got, want) {
		t.Errorf("holds after 1..17 wrong answers: got %v, want %v", got, want)
	}
	if h := p.hold(netip.MustParseAddr("192.0.2.2"), now); h != 0 {
		t.Errorf("another address is held back %v", h)
	}
	if h := p.hold(netip.MustParseAddr("::ffff:192.0.2.1"), now); h != 8*time.Second {
		t.Errorf("the same address as IPv6: %v, want 8s", h)
	}
	now += 58 * time.Second
	if h := p.hold(a, now); h != 8*time.Second {
		t.Errorf("within the minute: %v, want 8s", h)
	}
	now += time.Second
	if h := p.hold(a, now); h != 0 {
		t.Errorf("after a minute without a wrong answer: %v, want 0", h)
	}
	p.failed(a, now)
	if h := p.hold(a, now); h != 0 {
		t.Errorf("the first after that: %v, want 0", h)
	}
}

// Ten wrong answers a minute cost nothing for ever; the eleventh within a minute does, wherever the minute lies.
func TestPenaltyWindowSlides(t *testing.T) {
	a := netip.MustParseAddr("2001:db8::1")
	p := newPenalties()
	now := time.Duration(0)
	for i := range 100 {
		now += penaltyWindow / penaltyFree
		p.failed(a, now)
		if h := p.hold(a, now); h != 0 {
			t.Fatalf("wrong answer %d, one in 6 s: held back %v", i+1, h)
		}
	}
	p.failed(netip.MustParseAddr("2001:db8::ffff:2"), now+time.Second) // the same /64
	if h := p.hold(a, now+time.Second); h != penaltyFirst {
		t.Errorf("the eleventh within a minute: %v, want %v", h, penaltyFirst)
	}
	if h := p.hold(netip.MustParseAddr("2001:db8:0:1::1"), now); h != 0 {
		t.Errorf("another /64 is held back %v", h)
	}
}

func TestPenaltiesAreBounded(t *testing.T) {
	p := newPenalties()
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	for range 11 {
		p.failed(addr(0), 0)
	}
	for i := range penaltyCapacity {
		p.failed(addr(i+1), time.Duration(i))
	}
	if len(p.byAddr) != penaltyCapacity || p.recent.Len() != penaltyCapacity {
		t.Errorf("%d and %d addresses, want %d", len(p.byAddr), p.recent.Len(), penaltyCapacity)
	}
	if h := p.hold(addr(0), 0); h != 0 {
		t.Error("the least recent is still known")
	}
}

// The wheel looks at each session when its time comes, in any order of adding, moving and removing, and never early by more
// than the clock.
func TestWheel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var w wheel
	e := &Engine{cfg: Config{}}
	l := &loop{e: e}
	due := map[*session]time.Duration{}
	var all []*session
	for range 500 {
		// A lingering session without a connection: check does nothing before its deadline.
		all = append(all, &session{l: l, state: gone})
	}
	now := time.Duration(0)
	for range 20000 {
		s := all[rnd.IntN(len(all))]
		switch rnd.IntN(4) {
		case 0, 1:
			d := now + time.Duration(rnd.Int64N(int64(quietTimeout)))
			if old, ok := due[s]; !ok || d < old {
				due[s] = d
			}
			w.add(s, d)
		case 2:
			w.remove(s)
			delete(due, s)
		case 3:
			now += time.Duration(rnd.Int64N(int64(2 * tickPeriod)))
			w.advance(now)
			for s, d := range due {
				queued := s.tick != 0
				if now >= d+2*tickPeriod && queued {
					t.Fatalf("at %v a session due at %v was not looked at", now, d)
				}
				if now < d-tickPeriod && !queued {
					t.Fatalf("at %v a session due at %v was looked at", now, d)
				}
				if !queued {
					delete(due, s)
				}
			}
		}
	}
	// A process that stood still for an hour.
	w.add(all[0], now+time.Hour)
	w.advance(now + time.Hour + tickPeriod)
}

func TestUnwritten(t *testing.T) {
	st := &stall{marks: []mark{{end: 100, bytes: 100, replies: 10}, {end: 150, bytes: 50, replies: 5}}, replies: 15}
	for _, c := range []struct {
		taken uint64
		want  int
	}{{0, 15}, {1, 15}, {10, 14}, {95, 6}, {99, 6}} {
		st.taken = c.taken
		if got := st.unwritten(); got != c.want {
			t.Errorf("with %d of 150 bytes taken: %d unwritten, want %d", c.taken, got, c.want)
		}
	}
}
