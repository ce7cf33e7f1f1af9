package locktable

import (
	"cmp"
	"slices"
	"time"
)

// Commit applies a committed record, of this node or another, and answers what hung on it. A record of another proposer
// ends the own stint: a table that still believes that it leads is being handed its successor's records.
func (t *Table) Commit(now time.Duration, r *Record) {
	t.apply(r)
	switch mine := r.By == t.me; {
	case mine && r.Seq == 0 && t.starting:
		t.begin(now)
	case !t.leading:
	case mine:
		t.resolve(now, r.Seq)
	default:
		t.Lose(now)
	}
	t.forget()
	t.settle()
}

// Refuse says that a record of this node was refused and will never commit. Others in flight may yet. For the start
// entry it means that no stint begins.
func (t *Table) Refuse(now time.Duration, by Proposer, seq uint64) {
	if by != t.me {
		return
	}
	if seq == 0 {
		t.starting = false
		return
	}
	i := slices.IndexFunc(t.pending, func(f *flight) bool { return f.record.Seq == seq })
	if !t.leading || i < 0 {
		return
	}
	t.refused = true
	t.undone = append(t.undone, t.pending[i])
	t.pending = slices.Delete(t.pending, i, i+1)
	if len(t.pending) == 0 {
		t.resume(now)
	}
}

// resolve answers what hung on the own record of that sequence. Records before it that are still pending were refused:
// the log has passed them by.
func (t *Table) resolve(now time.Duration, seq uint64) {
	i := slices.IndexFunc(t.pending, func(f *flight) bool { return f.record.Seq == seq })
	if i < 0 {
		return
	}
	f := t.pending[i]
	if i > 0 {
		t.refused = true
		t.undone = append(t.undone, t.pending[:i]...)
	}
	t.pending = slices.Delete(t.pending, 0, i+1)
	var again []*command
	waiters, tokens := f.waiters, t.results.tokens
	for i := range f.items {
		e, it := &f.record.Entries[i], &f.items[i]
		switch e.Kind {
		case Step:
			if it.end != nil {
				again = t.ended(now, it, e.Why, t.results.ended[i], again)
			}
			for j := range e.Asks {
				t.decided(now, waiters[j], tokens[j], e.End != 0)
			}
			waiters, tokens = waiters[e.Asks:], tokens[e.Asks:]
		case Reaffirm:
			again = t.affirmedBy(it.affirm, t.results.affirms[i], again)
		case Barrier:
			again = t.unbar(it.commands, again)
		}
	}
	t.land(f)
	switch {
	case t.refused:
		for _, c := range again {
			t.putOff(c)
		}
		if len(t.pending) == 0 {
			t.resume(now)
		}
	case len(again) > 0:
		t.decideAgain(now, again)
	}
}

// ended answers the release that ended a token, and takes along those that waited for the end.
func (t *Table) ended(now time.Duration, it *item, why EndReason, done bool, again []*command) []*command {
	g := it.end
	if r := &it.release; r.session != 0 {
		kind := Released
		if !done {
			kind = NotHeld
		}
		t.undecided(r.session, -1)
		t.undecidedReleases--
		t.answer(kind, r.session, r.flags, r.id, g.token, g.key.name[1:])
	}
	again = t.unwait(g, again)
	if !done {
		g.ending = false
		t.touchAll(g)
		return again
	}
	t.kept.Observe(now - g.granted)
	switch why {
	case ByRelease:
		t.counts.Releases++
	case ByExpiry:
		t.counts.Expiries++
	case ByRevoke:
		t.counts.Revocations++
	}
	return again
}

func (t *Table) touchAll(g *grant) {
	t.touch(g.key)
	for _, k := range g.more {
		t.touch(k)
	}
}

// unwait takes the releases that waited for g's end.
func (t *Table) unwait(g *grant, again []*command) []*command {
	for _, c := range g.releases {
		t.count(c, -1)
		again = append(again, c)
	}
	g.releases = nil
	return again
}

// unbar takes the releases that waited for a barrier which has been applied.
func (t *Table) unbar(commands, again []*command) []*command {
	for _, c := range commands {
		c.barred = true
		t.count(c, -1)
		again = append(again, c)
	}
	return again
}

// decided answers a waiter whose grant was made, or brings it back to its place.
func (t *Table) decided(now time.Duration, w *waiter, token Token, handOver bool) {
	queued := !w.fresh
	t.unreserve(w)
	if token == 0 {
		t.back(w)
		return
	}
	g := w.first.key.holder
	g.hold = hold{granted: now}
	for c := range w.claims {
		g.copies++
		g.session = c.session
	}
	t.arm(g, now)
	t.counts.Grants++
	if handOver {
		t.counts.HandOvers++
	}
	if queued {
		t.waited.Observe(now - w.arrived)
	}
	if g.copies == 0 { // everyone who asked for it has gone meanwhile
		t.revokes = append(t.revokes, revoke{g, token})
	}
	t.reply(w, Granted, token)
	t.drop(w)
}

// unreserve ends the reservation of w's keys.
func (t *Table) unreserve(w *waiter) {
	for p := range w.places {
		if p.key.reserved == w {
			p.key.reserved = nil
		}
	}
	for c := range w.claims {
		t.undecided(c.session, -1)
	}
	if w.fresh {
		w.fresh = false
		t.undecidedAcquires--
	}
	if w.rare != nil {
		t.undecidedAcquires -= w.rare.joined
		w.rare.joined = 0
	}
}

// back returns w to its place in its queues, with its old deadline; an attempt without queueing is due now.
func (t *Table) back(w *waiter) {
	for p := range w.places {
		t.touch(p.key)
	}
	if w.unclaimed() {
		t.drop(w)
		return
	}
	if t.stopped {
		t.reply(w, StopQueued, 0)
		t.drop(w)
		return
	}
	t.enqueue(w)
	t.waits.schedule(w, w.tm.at())
}

// resume decides everything again that hung on refused records or came meanwhile: first the waiters, at their old
// places, then the commands in the order in which they arrived.
func (t *Table) resume(now time.Duration) {
	t.refused = false
	flights := append(t.undone, t.batch...)
	again := t.later
	for _, c := range again {
		t.count(c, -1)
	}
	t.undone, t.batch, t.later = nil, nil, nil
	for _, f := range flights {
		for i := range f.items {
			again = t.undo(&f.record.Entries[i], &f.items[i], again)
		}
		for _, w := range f.waiters {
			t.unreserve(w)
			t.back(w)
		}
		t.land(f)
	}
	t.goOn()
	t.decideAgain(now, again)
}

// undo takes one entry of a refused record back.
func (t *Table) undo(e *Entry, it *item, again []*command) []*command {
	switch e.Kind {
	case Reaffirm:
		return append(again, t.unaffirm(it.affirm)...)
	case Barrier:
		for _, c := range it.commands {
			t.count(c, -1)
		}
		return append(again, it.commands...)
	}
	g := it.end
	if g == nil {
		return again
	}
	g.ending = false
	t.touchAll(g)
	if !g.tm.linked() {
		t.leases.schedule(g, g.tm.at())
	}
	if e.Why == ByRevoke {
		t.revokes = append(t.revokes, revoke{g, g.token})
	}
	if r := &it.release; r.session != 0 {
		t.undecided(r.session, -1)
		t.undecidedReleases--
		again = append(again, releaseCommand(&Release{
			Session: r.session, ID: r.id, Token: g.token, Keys: g.keys(), Flags: r.flags,
		}, r.order))
	}
	return t.unwait(g, again)
}

// putOff keeps a command until the refused records have been gathered.
func (t *Table) putOff(c *command) {
	t.count(c, 1)
	t.later = append(t.later, c)
}

// count counts a command that cannot be decided yet, or (n -1) no longer.
func (t *Table) count(c *command, n int) {
	if c.kind == anAcquire {
		t.undecidedAcquires += n
		t.undecided(c.acquire.Session, int32(n))
		return
	}
	t.undecidedReleases += n
	t.undecided(c.release.Session, int32(n))
}

// decideAgain decides commands in the order of their arrival; those that arrive anew (order 0) now.
func (t *Table) decideAgain(now time.Duration, again []*command) {
	slices.SortStableFunc(again, func(a, b *command) int { return cmp.Compare(a.order, b.order) })
	for _, c := range again {
		if c.order == 0 {
			t.order++
			c.order = t.order
		}
		switch c.kind {
		case anAcquire:
			x := t.sessionOf(c.acquire.Session)
			if x == nil || x.ended {
				continue
			}
			if c.turnedAway {
				t.answerAcquire(&c.acquire, Busy)
				continue
			}
			if x.leaving {
				c.acquire.Wait = 0
			}
			t.acquire(now, c.arrived, &c.acquire, c.order)
		case aRelease:
			t.release(&c.release, c.order, c)
		}
		t.goOn()
	}
	t.settle()
}
