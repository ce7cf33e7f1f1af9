package history

import (
	"sort"
	"time"
)

// clock knows what stretches a bound: spans in which the observer did not run, and spans without a stable leader.
type clock struct {
	l        Limits
	stalls   []Window
	unstable []Window
}

// farOff is later than anything, and leaves room to add to it.
const farOff = Never / 4

func newClock(h *History, l Limits) *clock {
	c := &clock{l: l, stalls: sortedWindows(h.Stalls), unstable: sortedWindows(h.Unstable)}
	for i := range c.unstable {
		c.unstable[i].To = min(c.unstable[i].To, farOff)
	}
	return c
}

// sortedWindows are disjoint windows in ascending order that cover the same time.
func sortedWindows(ws []Window) []Window {
	ws = append([]Window(nil), ws...)
	sort.Slice(ws, func(i, j int) bool { return ws[i].From < ws[j].From })
	var out []Window
	for _, w := range ws {
		if n := len(out); n > 0 && w.From <= out[n-1].To {
			out[n-1].To = max(out[n-1].To, w.To)
			continue
		}
		out = append(out, w)
	}
	return out
}

// overlapping are the windows of a sorted list that share an instant with [from, to].
func overlapping(ws []Window, from, to time.Duration) []Window {
	i := sort.Search(len(ws), func(i int) bool { return ws[i].To >= from })
	j := i
	for j < len(ws) && ws[j].From <= to {
		j++
	}
	return ws[i:j]
}

// late is the instant d after from, put off by every stall on the way. A stall counts in full: what came in just
// before it is read only after it.
func (c *clock) late(from, d time.Duration) time.Duration {
	to := from + d
	for i := sort.Search(len(c.stalls), func(i int) bool { return c.stalls[i].To >= from }); i < len(c.stalls); i++ {
		if c.stalls[i].From > to {
			break
		}
		to += c.stalls[i].To - c.stalls[i].From
	}
	return to
}

// unsettled says that [from, to] touches a span without a stable leader.
func (c *clock) unsettled(from, to time.Duration) bool {
	return len(overlapping(c.unstable, from, to)) > 0
}

// latest is the latest instant at which a lease that took effect by from may end: late by the drift of clocks, and by
// every change of leader on the way for as long as it took, and Limits.Change more.
func (c *clock) latest(from, lease time.Duration) time.Duration {
	to := from + lease + time.Duration(c.l.Drift*float64(lease))
	for i := sort.Search(len(c.unstable), func(i int) bool { return c.unstable[i].To >= from }); i < len(c.unstable); i++ {
		if c.unstable[i].From > to {
			break
		}
		to += c.unstable[i].To - c.unstable[i].From + c.l.Change
	}
	return to
}

// ends is the latest instant at which the hold of a grant may end, and whether a release that was answered ends it.
func (k *keyed) ends(c *clock, g *Op) (end time.Duration, released *Op) {
	end = c.latest(g.Return, g.Lease)
	for _, rel := range k.releases[g.Token] {
		if rel.Outcome == Released && rel.Return < end {
			end, released = rel.Return, rel
		}
	}
	return end, released
}

// checkIdle finds keys that stayed without a holder while an acquire was known to be queued: after a release, or after
// the latest end of a lease, some grant must be answered within Limits.HandOver. Nothing is found where an acquire of
// unknown outcome may have got the key meanwhile: a hand-over that was proposed by a leader as it lost its lead may be
// committed when the next one begins, and then holds until its lease ends, though nobody was told.
func checkIdle(r *Report, k *keyed, c *clock) {
	q := newQueue(k, c)
	if len(q.known) == 0 {
		return
	}
	for i, g := range k.grants {
		if i+1 < len(k.grants) && k.grants[i+1].Token == g.Token {
			continue
		}
		end, released := k.ends(c, g)
		since, early := g.Call, g.Call+g.Lease // early: the hold cannot have ended before
		if released != nil {
			since, early = released.Call, released.Call
		}
		bound := c.late(end, c.l.HandOver)
		if released != nil && c.unsettled(since, bound) {
			continue
		}
		if q.servedBy(i+1, bound) || q.perhapsServed(early-c.l.NoticeDead, bound) {
			continue
		}
		w := q.waitingAcross(end, bound)
		if w == nil {
			continue
		}
		if released != nil {
			r.add(Idle, "%v: %v was queued at %v, and nobody was granted the key by %v", released, w, w.Queued, bound)
		} else {
			r.add(LateExpiry, "%v: %v was queued at %v, and nobody was granted the key by %v", g, w, w.Queued, bound)
		}
	}
}

// queue answers who waited for a key, and when.
type queue struct {
	k       *keyed
	c       *clock
	known   []*Op           // known to have been queued, and answered; by Queued
	maxWait time.Duration   // the longest time that one of known was queued
	open    []*Op           // acquires of unknown outcome, by Call
	gone    []time.Duration // greatest Gone of open[:i+1]
	firstBy []time.Duration // least Return of the grants from the i-th on
}

func newQueue(k *keyed, c *clock) *queue {
	q := &queue{k: k, c: c}
	for _, op := range k.ops {
		switch {
		case op.Kind != Acquire:
		case op.open():
			q.gone = append(q.gone, op.Gone)
			if n := len(q.open); n > 0 {
				q.gone[n] = max(q.gone[n], q.gone[n-1])
			}
			q.open = append(q.open, op)
		case op.Queued > 0 && (op.Outcome == Granted || op.Outcome == TimedOut && op.Wait > 0):
			q.known = append(q.known, op)
			q.maxWait = max(q.maxWait, op.Return-op.Queued)
		}
	}
	sort.SliceStable(q.known, func(i, j int) bool { return q.known[i].Queued < q.known[j].Queued })
	q.firstBy = make([]time.Duration, len(k.grants)+1)
	q.firstBy[len(k.grants)] = Never
	for i := len(k.grants) - 1; i >= 0; i-- {
		q.firstBy[i] = min(q.firstBy[i+1], k.grants[i].Return)
	}
	return q
}

// servedBy says that one of the grants from the i-th on was answered by an instant.
func (q *queue) servedBy(i int, by time.Duration) bool { return q.firstBy[i] <= by }

// perhapsServed says that an acquire whose outcome nobody knows may have taken the key between two instants: it was
// called before the second, and its session was not gone before the first.
func (q *queue) perhapsServed(from, to time.Duration) bool {
	i := sort.Search(len(q.open), func(i int) bool { return q.open[i].Call > to })
	return i > 0 && q.gone[i-1] >= from
}

// waitingAcross is an acquire that was known to be queued at from, and neither granted nor due to time out by to; nil
// if there is none. Where a span without a stable leader lies between, it must have been queued after that: queues end
// with their leader.
func (q *queue) waitingAcross(from, to time.Duration) *Op {
	for i := sort.Search(len(q.known), func(i int) bool { return q.known[i].Queued > from }) - 1; i >= 0; i-- {
		w := q.known[i]
		if w.Queued < from-q.maxWait {
			return nil
		}
		until := w.Return
		if w.Outcome == TimedOut {
			until = min(until, w.Call+w.Wait-q.c.l.Early)
		}
		if until > to && !q.c.unsettled(w.Queued, to) {
			return w
		}
	}
	return nil
}

// checkAnswers holds single answers to their time: a TimedOut neither before it is due nor late, and no acquire or
// release of a live session without an answer. Where there was no stable leader, nothing is late.
func checkAnswers(r *Report, k *keyed, c *clock) {
	for _, op := range k.ops {
		switch {
		case op.Outcome == Unanswered && !c.unsettled(op.Call, op.Gone):
			r.add(Overdue, "%v, given up at %v", op, op.Gone)
		case op.Outcome == TimedOut:
			due := op.Call + max(0, op.Wait-c.l.Early)
			if op.Return < due {
				r.add(TooEarly, "%v: due at %v", op, due)
			}
			if op.Return > c.late(due, c.l.Timely) && !c.unsettled(op.Call, op.Return) {
				r.add(TooLate, "%v: due at %v", op, due)
			}
		}
	}
}

// checkRefusals finds attempts without waiting that were refused although nobody can have held the key: what a release
// that was answered and forgotten looks like, or a grant that nobody was told of.
func checkRefusals(r *Report, k *keyed, c *clock) {
	type span struct{ from, to time.Duration }
	var may []span // in which an acquire may have held the key, stood in its queue, or been under way
	for _, op := range k.ops {
		if op.Kind != Acquire || op.Outcome == TimedOut && op.Wait == 0 {
			continue
		}
		s := span{op.Call, op.Return}
		switch {
		case op.Outcome == Granted:
			s.to, _ = k.ends(c, op)
			s.to = c.late(max(s.to, op.Return), c.l.HandOver)
		case op.open(): // granted at the latest when the leader has noticed, or when the next one begins
			by := op.Gone + c.l.NoticeDead
			for _, w := range overlapping(c.unstable, op.Call, by) {
				by = max(by, w.To)
			}
			s.to = c.late(c.latest(by, op.Lease), c.l.HandOver)
		}
		if n := len(may); n > 0 {
			s.to = max(s.to, may[n-1].to)
		}
		may = append(may, s)
	}
	for _, op := range k.ops {
		if op.Kind != Acquire || op.Outcome != TimedOut || op.Wait > 0 || c.unsettled(op.Call, op.Return) {
			continue
		}
		i := sort.Search(len(may), func(i int) bool { return may[i].from > op.Return })
		if i == 0 || may[i-1].to < op.Call {
			r.add(Causeless, "%v", op)
		}
	}
}
