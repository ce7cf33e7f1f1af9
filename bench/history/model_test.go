package history

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

const ms = time.Millisecond

func acquired(session int32, call, ret, lease time.Duration, token uint64) Op {
	return Op{Key: "L", Kind: Acquire, Outcome: Granted, Session: session, Call: call, Return: ret, Lease: lease,
		Token: token, Wait: time.Second}
}

func released(session int32, call, ret time.Duration, token uint64, o Outcome) Op {
	op := Op{Key: "L", Kind: Release, Outcome: o, Session: session, Call: call, Return: ret, Token: token}
	if op.open() {
		op.Gone, op.Return = ret, Never
	}
	return op
}

func TestByHand(t *testing.T) {
	timedOut := func(call, ret, wait, queued time.Duration) Op {
		return Op{Key: "L", Kind: Acquire, Outcome: TimedOut, Session: 9, Call: call, Return: ret, Wait: wait, Queued: queued,
			Lease: time.Second}
	}
	queued := func(op Op, at time.Duration) Op { op.Queued = at; return op }
	other := func(op Op) Op { op.Key = "M"; return op }
	for _, c := range []struct {
		name string
		ops  []Op
		want []Rule // one of these; none: nothing may be found
	}{
		{"two holders", []Op{acquired(0, 0, 10*ms, time.Second, 1), acquired(1, 20*ms, 30*ms, time.Second, 2)},
			[]Rule{DoubleHolder, Linearizable}},
		{"expired, then granted", []Op{acquired(0, 0, 10*ms, 15*ms, 1), acquired(1, 20*ms, 30*ms, time.Second, 2)}, nil},
		{"released, then granted", []Op{acquired(0, 0, 10*ms, time.Second, 1), released(0, 12*ms, 14*ms, 1, Released),
			acquired(1, 20*ms, 30*ms, time.Second, 2)}, nil},
		{"release of unknown outcome, then granted", []Op{acquired(0, 0, 10*ms, time.Second, 1),
			released(0, 12*ms, 14*ms, 1, Unknown), acquired(1, 20*ms, 30*ms, time.Second, 2)}, nil},
		{"release of unknown outcome, then N", []Op{acquired(0, 0, 10*ms, time.Second, 1),
			released(0, 12*ms, 14*ms, 1, Unknown), released(0, 20*ms, 21*ms, 1, NotHeld)}, nil},
		{"N without a cause", []Op{acquired(0, 0, 10*ms, time.Second, 1), released(0, 20*ms, 21*ms, 1, NotHeld)},
			[]Rule{HoldLost}},
		{"released twice", []Op{acquired(0, 0, 10*ms, time.Second, 1), released(0, 20*ms, 21*ms, 1, Released),
			released(1, 30*ms, 31*ms, 1, Released)}, []Rule{StaleReleased}},
		{"token on two keys", []Op{acquired(0, 0, 10*ms, 15*ms, 7), other(acquired(1, 5*ms, 30*ms, time.Second, 7))},
			[]Rule{TokenReused}},
		{"token fell on another key", []Op{acquired(0, 0, 10*ms, 15*ms, 7), other(acquired(1, 20*ms, 30*ms, time.Second, 6))},
			[]Rule{TokenFell}},
		{"tokens of overlapping acquires in either order", []Op{acquired(0, 0, 10*ms, 15*ms, 7),
			other(acquired(1, 5*ms, 30*ms, time.Second, 6))}, nil},
		{"idle after a release", []Op{acquired(0, 0, 10*ms, time.Second, 1), released(0, 20*ms, 21*ms, 1, Released),
			queued(acquired(1, 5*ms, 130*ms, time.Second, 2), 6*ms)}, []Rule{Idle}},
		{"handed over in time", []Op{acquired(0, 0, 10*ms, time.Second, 1), released(0, 20*ms, 21*ms, 1, Released),
			queued(acquired(1, 5*ms, 110*ms, time.Second, 2), 6*ms)}, nil},
		{"waiter not known to be queued", []Op{acquired(0, 0, 10*ms, time.Second, 1), released(0, 20*ms, 21*ms, 1, Released),
			acquired(1, 5*ms, 200*ms, time.Second, 2)}, nil},
		{"lease ended late", []Op{acquired(0, 0, 10*ms, time.Second, 1),
			queued(acquired(1, 5*ms, 1120*ms, time.Second, 2), 6*ms)}, []Rule{LateExpiry}},
		{"lease ended in time", []Op{acquired(0, 0, 10*ms, time.Second, 1),
			queued(acquired(1, 5*ms, 1100*ms, time.Second, 2), 6*ms)}, nil},
		{"lease cut short", []Op{acquired(0, 0, 10*ms, time.Second, 1),
			queued(acquired(1, 5*ms, 999*ms, time.Second, 2), 6*ms)}, []Rule{DoubleHolder}},
		{"overtaken", []Op{acquired(0, 0, 1*ms, 30*ms, 1), queued(acquired(1, 5*ms, 50*ms, 10*ms, 3), 6*ms),
			queued(acquired(2, 7*ms, 40*ms, 8*ms, 2), 8*ms)}, []Rule{OutOfOrder}},
		{"refused while free", []Op{acquired(0, 0, 10*ms, time.Second, 1), released(0, 20*ms, 21*ms, 1, Released),
			timedOut(200*ms, 201*ms, 0, 0)}, []Rule{Causeless}},
		{"refused while held", []Op{acquired(0, 0, 10*ms, time.Second, 1), timedOut(200*ms, 201*ms, 0, 0)}, nil},
		{"timed out early", []Op{acquired(0, 0, 10*ms, 2*time.Second, 1), timedOut(20*ms, 900*ms, time.Second, 0)},
			[]Rule{TooEarly}},
		{"timed out late", []Op{acquired(0, 0, 10*ms, 2*time.Second, 1), timedOut(20*ms, 1100*ms, time.Second, 0)},
			[]Rule{TooLate}},
	} {
		r := Check(&History{Ops: c.ops}, DefaultLimits())
		ok := r.OK() == (c.want == nil)
		for _, rule := range c.want {
			ok = ok && r.Has(rule)
		}
		if !ok {
			t.Errorf("%s: got %v, want %v", c.name, r.Violations, c.want)
		}
	}
}

// An unstable span and a stall excuse what is late in them, and nothing else.
func TestExcuses(t *testing.T) {
	late := []Op{acquired(0, 0, 10*ms, time.Second, 1), released(0, 20*ms, 21*ms, 1, Released),
		acquired(1, 5*ms, 160*ms, time.Second, 2)}
	late[2].Queued = 6 * ms
	for _, c := range []struct {
		name string
		h    History
		ok   bool
	}{
		{"stall", History{Ops: late, Stalls: []Window{{100 * ms, 150 * ms}}}, true},
		{"stall elsewhere", History{Ops: late, Stalls: []Window{{200 * ms, 250 * ms}}}, false},
		{"leader change", History{Ops: late, Unstable: []Window{{50 * ms, 100 * ms}}}, true},
		{"no leader any more", History{Ops: late, Unstable: []Window{{50 * ms, Never}}}, true},
		{"leader change elsewhere", History{Ops: late, Unstable: []Window{{200 * ms, 300 * ms}}}, false},
	} {
		if r := Check(&c.h, DefaultLimits()); r.OK() != c.ok {
			t.Errorf("%s: got %v, want ok %v", c.name, r.Violations, c.ok)
		}
	}
}

// randomHistory makes a short history of one key: that of a correct lock, some answers lost and some changed.
func randomHistory(rnd *rand.Rand) []Op {
	var ops []Op
	var now, end time.Duration
	var token, held uint64
	spread := func() time.Duration { return time.Duration(rnd.IntN(30)) }
	for range 3 + rnd.IntN(9) {
		now += time.Duration(1 + rnd.IntN(20))
		op := Op{Key: "L", Session: int32(len(ops)), Call: max(0, now-spread()), Return: now + spread()}
		if held != 0 && now >= end {
			held = 0
		}
		if rnd.IntN(2) == 0 {
			op.Kind, op.Lease, op.Outcome = Acquire, time.Duration(10+rnd.IntN(60)), TimedOut
			if held == 0 || rnd.IntN(12) == 0 {
				token++
				held, end = token, now+op.Lease
				op.Outcome, op.Token = Granted, token
			}
		} else {
			op.Kind, op.Outcome, op.Token = Release, NotHeld, uint64(rnd.IntN(int(token)+1))
			if rnd.IntN(3) > 0 {
				op.Token = token
			}
			if held != 0 && op.Token == held || rnd.IntN(20) == 0 {
				op.Outcome, held = Released, 0
			}
		}
		switch rnd.IntN(12) {
		case 0, 1:
			op.Outcome, op.Gone, op.Return = Unknown, op.Return, Never
			if op.Kind == Acquire {
				op.Token = 0
			}
		case 2:
			if op.Token > 0 {
				op.Token += uint64(rnd.IntN(3)) - 1
			}
		}
		ops = append(ops, op)
	}
	return ops
}

// The reductions do not change the verdict of the plain model, in which everything takes part and what is unknown may
// take effect at any later time.
func TestReductionsKeepTheVerdict(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	counts := map[porcupine.CheckResult]int{}
	cut := 0
	for range 30000 {
		ops := randomHistory(rnd)
		k := byKey(ops)[0]
		var plain []step
		for _, op := range k.ops {
			plain = append(plain, step{kind: op.Kind, outcome: op.Outcome, token: op.Token, from: op.Call, to: op.Return,
				lease: op.Lease, op: op})
		}
		want := porcupine.CheckOperationsTimeout(model(), operations(plain), 0)
		got := porcupine.Ok
		steps, impossible := k.steps()
		if impossible != nil {
			got = porcupine.Illegal
		} else {
			for _, s := range segments(steps, 1) {
				cut++
				if porcupine.CheckOperationsTimeout(model(), operations(s), 0) == porcupine.Illegal {
					got = porcupine.Illegal
				}
			}
		}
		counts[want]++
		if got != want {
			for i := range ops {
				t.Logf("%d..%d %v", ops[i].Call, ops[i].Return, &ops[i])
			}
			t.Fatalf("got %v, want %v (nothing left for %v)", got, want, impossible)
		}
	}
	t.Logf("%v, %d segments", counts, cut)
	if counts[porcupine.Ok] < 1000 || counts[porcupine.Illegal] < 1000 {
		t.Errorf("verdicts %v: the generator is lopsided", counts)
	}
}

// A change of leader that nobody caused is seen in the grants, and in what a leader answers that loses its lead.
func TestChanges(t *testing.T) {
	at := func(ret time.Duration, node int32, o Outcome) Op {
		return Op{Key: "L", Kind: Acquire, Outcome: o, Call: ret - ms, Return: ret, Node: node, Token: uint64(ret), Lease: ms}
	}
	h := History{Ops: []Op{at(1000*ms, 1, Granted), at(2500*ms, 2, Granted), at(2000*ms, 1, Granted), at(3000*ms, 2, Granted),
		at(4000*ms, 2, Busy), at(5000*ms, 2, Granted), at(6000*ms, 2, Granted)}}
	want := []Window{{1900 * ms, 2600 * ms}, {2900 * ms, 5100 * ms}}
	if got := h.Changes(100 * ms); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// An acquire that was queued at a leader as it lost its lead may have been granted unseen: the key is not idle then.
func TestUnseenGrantExcuses(t *testing.T) {
	unseen := Op{Key: "L", Kind: Acquire, Outcome: Unknown, Session: 2, Call: 20 * ms, Return: Never, Gone: 1100 * ms,
		Wait: 3 * time.Second, Lease: 3 * time.Second}
	waiter := acquired(1, 1500*ms, 4400*ms, time.Second, 3)
	waiter.Queued = 1501 * ms
	h := History{Ops: []Op{acquired(0, 0, 10*ms, time.Second, 1), unseen, waiter}, Unstable: []Window{{1000 * ms, 1400 * ms}}}
	if r := Check(&h, DefaultLimits()); !r.OK() {
		t.Errorf("got %v, want nothing", r.Violations)
	}
	h.Ops = []Op{h.Ops[0], waiter}
	if r := Check(&h, DefaultLimits()); !r.Has(LateExpiry) {
		t.Errorf("without the unseen acquire: got %v, want %v", r.Violations, LateExpiry)
	}
}
