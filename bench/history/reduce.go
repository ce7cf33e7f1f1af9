package history

import (
	"runtime"
	"sort"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// What the search for an order costs grows with the operations that are open at the same time, and porcupine's memory
// with the square of a history's length. Four reductions keep both small. None changes the verdict; the tests compare
// it with that of the plain model.
//
//  1. Operations without effect leave: refused and timed-out acquires, refused releases.
//  2. Acquires of unknown outcome leave: to assume that they never happened is always allowed, and of all assumptions
//     the one that forbids least. (Only where an answered release names a token that no answered grant of the key has
//     are they kept, for one of them may have been that grant.)
//  3. The rest is narrowed to when it can have taken effect. Tokens are in the order of the grants, so no grant comes
//     before the earliest end of its predecessor, or after the answer to its successor; an answered release lies
//     between its grant and the next one; a release of unknown outcome means nothing any more after the next grant. What
//     then has no time left has no order either.
//  4. Where all operations so far have ended, no other has begun, and nothing so far tried to release the last grant,
//     the key is held by that grant, and the history can be cut in two: the second part begins in that state.

// segmentLength is the number of operations from which a history is cut when it can be.
const segmentLength = 200

// steps are reductions 1 to 3. An operation for which there is no time left is returned as impossible.
func (k *keyed) steps() (steps []step, impossible *Op) {
	from := k.earliest()
	to := make([]time.Duration, len(k.grants))
	by := Never
	for i := len(k.grants) - 1; i >= 0; i-- {
		by = min(by, k.grants[i].Return)
		to[i] = by
		if from[i] > to[i] {
			return nil, k.grants[i]
		}
		if i > 0 && k.grants[i].Token == k.grants[i-1].Token {
			return nil, k.grants[i]
		}
	}
	known := func(t uint64) (i int, ok bool) {
		i = k.after(t) - 1
		return i, i >= 0 && k.grants[i].Token == t
	}
	keepOpen := false
	for t, rels := range k.releases { // order does not matter: any one suffices
		for _, rel := range rels {
			if _, ok := known(t); !ok && rel.Outcome == Released {
				keepOpen = true
			}
		}
	}
	g := map[*Op]int{}
	for i, op := range k.grants {
		g[op] = i
	}
	for _, op := range k.ops {
		s := step{kind: op.Kind, outcome: op.Outcome, token: op.Token, from: op.Call, to: op.Return, lease: op.Lease, op: op}
		switch {
		case op.Kind == Acquire && op.Outcome == Granted:
			s.from, s.to = from[g[op]], to[g[op]]
		case op.Kind == Acquire && op.open() && keepOpen:
		case op.Kind == Acquire:
			continue
		case op.Outcome == Released:
			if i, ok := known(op.Token); ok {
				s.from = max(s.from, from[i])
				if i+1 < len(to) {
					s.to = min(s.to, to[i+1])
				}
			}
		case op.open():
			if i := k.after(op.Token); i < len(to) {
				s.to = to[i]
			}
			if s.to < s.from {
				continue
			}
		case op.Outcome != NotHeld:
			continue
		}
		if s.from > s.to {
			return nil, op
		}
		steps = append(steps, s)
	}
	sort.SliceStable(steps, func(i, j int) bool { return steps[i].from < steps[j].from })
	return steps, nil
}

// segments is reduction 4, with segments of at least length steps. steps are by from.
func segments(steps []step, length int) [][]step {
	var out [][]step
	var ended time.Duration // when all steps so far have ended
	var last *step          // grant of the greatest token so far
	touched := map[uint64]bool{}
	if len(steps) == 0 {
		return nil
	}
	begin := 0
	var resume *step
	cut := func(end int) {
		segment := make([]step, 0, end-begin+1)
		if resume != nil {
			segment = append(segment, *resume)
		}
		out = append(out, append(segment, steps[begin:end]...))
	}
	openAcquire := false
	for i := range steps {
		s := &steps[i]
		if i-begin >= length && ended < s.from && last != nil && !touched[last.token] && !openAcquire {
			cut(i)
			begin = i
			resume = &step{from: ended, to: ended, resume: &lock{held: true, token: last.token, last: last.token,
				expiry: last.from + last.lease, since: last.from}}
		}
		ended = max(ended, s.to)
		switch {
		case s.kind == Acquire && s.outcome != Granted:
			openAcquire = true
		case s.kind == Acquire && (last == nil || s.token > last.token):
			last = s
		case s.kind == Release:
			touched[s.token] = true
		}
	}
	cut(len(steps))
	return out
}

// checkLinearizable looks for an order of each key's operations that explains all their answers, within a time for all
// of them together.
func checkLinearizable(r *Report, keys []*keyed, limit time.Duration) {
	deadline := time.Now().Add(limit)
	type part struct {
		key   *keyed
		steps []step
	}
	var parts []part
	for _, k := range keys {
		steps, impossible := k.steps()
		if impossible != nil {
			r.add(Linearizable, "key %q: nothing leaves time for %v", k.key, impossible)
			continue
		}
		for _, s := range segments(steps, segmentLength) {
			parts = append(parts, part{k, s})
		}
	}
	results := make([]porcupine.CheckResult, len(parts))
	work := make(chan int) // unbuffered: a part is given out when somebody is free for it
	var searching sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		searching.Add(1)
		// Ends when work is closed, below.
		go func() {
			defer searching.Done()
			m := model()
			for i := range work {
				left := max(time.Until(deadline), time.Millisecond)
				results[i] = porcupine.CheckOperationsTimeout(m, operations(parts[i].steps), left)
			}
		}()
	}
	for i := range parts {
		work <- i
	}
	close(work)
	searching.Wait()
	for i, p := range parts {
		first, last := p.steps[0], p.steps[len(p.steps)-1]
		switch results[i] {
		case porcupine.Illegal:
			r.add(Linearizable, "key %q, %d operations between %v and %v", p.key.key, len(p.steps), first.from, last.to)
		case porcupine.Unknown:
			r.add(Undecided, "key %q, %d operations between %v and %v", p.key.key, len(p.steps), first.from, last.to)
		}
	}
}
