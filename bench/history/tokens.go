package history

import (
	"sort"
	"time"
)

// checkTokens holds all grants of the domain, over all keys, to: no token twice, none 0, none at or below what came
// before the history, and if one grant was answered before another was asked for, its token is the lower one.
// O(n log n).
func checkTokens(r *Report, h *History) {
	var grants []*Op
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Kind == Acquire && op.Outcome == Granted {
			grants = append(grants, op)
		}
	}
	seen := make(map[uint64]*Op, len(grants))
	for _, g := range grants {
		if first := seen[g.Token]; first != nil {
			r.add(TokenReused, "%v and %v", first, g)
		}
		seen[g.Token] = g
		if g.Token <= h.Above {
			r.add(TokenFell, "%v, though %d was issued before", g, h.Above)
		}
	}
	byReturn := append([]*Op(nil), grants...)
	sort.Slice(byReturn, func(i, j int) bool { return byReturn[i].Return < byReturn[j].Return })
	sort.Slice(grants, func(i, j int) bool { return grants[i].Call < grants[j].Call })
	var greatest *Op
	next := 0
	for _, g := range grants {
		for next < len(byReturn) && byReturn[next].Return < g.Call {
			if greatest == nil || byReturn[next].Token > greatest.Token {
				greatest = byReturn[next]
			}
			next++
		}
		if greatest != nil && g.Token <= greatest.Token {
			r.add(TokenFell, "%v after %v", g, greatest)
		}
	}
}

// earliest walks the grants of a key in the order of their tokens, which is the order in which they took effect, and
// gives for each the earliest instant at which it can have taken effect: not before its call, and not before its
// predecessor can have ended. That is the call of its release where that was answered R; else the earlier of the end of
// its lease and the call of a release that nobody knows the outcome of.
func (k *keyed) earliest() []time.Duration {
	from := make([]time.Duration, len(k.grants))
	var free time.Duration
	for i, g := range k.grants {
		from[i] = max(g.Call, free)
		free = from[i] + g.Lease
		if e := k.mayEnd[g.Token]; e != nil && (e.Outcome == Released || e.Call < free) {
			free = max(from[i], e.Call)
		}
	}
	return from
}

// checkHolds finds two holders at once: a grant that was answered before its predecessor can have ended. It sees a
// lease that is cut short as well, since leases count from the earliest instant at which the grant can have taken
// effect, and never from before its call.
func checkHolds(r *Report, k *keyed) {
	from := k.earliest()
	for i, g := range k.grants {
		if i > 0 && g.Return < from[i] {
			r.add(DoubleHolder, "%v while held by %v, which cannot have ended before %v", g, k.grants[i-1], from[i])
		}
	}
}

// checkReleases holds the answers to releases to: R once for a token and only while it may hold; N only if something
// can have ended the hold.
func checkReleases(r *Report, k *keyed) {
	from := k.earliest()
	for i, g := range k.grants {
		var done *Op
		for _, rel := range k.releases[g.Token] {
			switch rel.Outcome {
			case Released:
				if done != nil {
					r.add(StaleReleased, "%v and again %v", done, rel)
				}
				done = rel
				if i+1 < len(k.grants) && k.grants[i+1].Return < rel.Call {
					r.add(StaleReleased, "%v after %v", rel, k.grants[i+1])
				}
			case NotHeld:
				checkNotHeld(r, k, g, from[i], rel)
			}
		}
	}
	for t, rels := range k.releases { // order does not matter: every token is judged alone
		if i := k.after(t) - 1; i >= 0 && k.grants[i].Token == t {
			continue
		}
		for _, rel := range rels {
			if rel.Outcome == Released && !k.unseen() {
				r.add(StaleReleased, "%v: nobody was granted that token on this key", rel)
			}
		}
	}
}

// unseen says that a grant may exist whose token nobody saw.
func (k *keyed) unseen() bool {
	for _, op := range k.ops {
		if op.Kind == Acquire && op.open() {
			return true
		}
	}
	return false
}

// checkNotHeld: N for the token of grant g, which took effect at from at the earliest, needs a cause.
func checkNotHeld(r *Report, k *keyed, g *Op, from time.Duration, rel *Op) {
	if rel.Call <= g.Return || rel.Return >= from+g.Lease {
		return // perhaps before the grant, or when the lease may have run out
	}
	for _, other := range k.releases[g.Token] {
		if other != rel && other.mayRelease() && other.Call <= rel.Return {
			return
		}
	}
	r.add(HoldLost, "%v of %v, whose lease cannot end before %v", rel, g, from+g.Lease)
}
