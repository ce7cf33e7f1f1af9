package locktable_test

import (
	"slices"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

// The part of the reference's leader that deals with deadlines, and with what becomes of its records.

func (l *refLead) tick(now time.Duration) {
	l.ticked = now.Truncate(time.Millisecond)
	var late []*refCommand
	for _, w := range l.queue {
		if w.due <= now {
			late = append(late, w)
		}
	}
	for _, w := range late {
		l.queue = remove(l.queue, w)
		l.t.counts.Timeouts++
		l.answerAll(w, locktable.TimedOut, 0)
	}
	l.gates()
	l.left()
	if l.hold {
		return
	}
	l.tickedLeases = l.ticked
	l.step(0, "", "", nil)
	var over []locktable.Token
	for token, due := range l.due {
		if due <= now && l.endable(token) {
			over = append(over, token)
		}
	}
	if len(over) > 1 || len(over) == 1 && len(late) > 0 {
		l.ties = true
	}
	slices.SortFunc(over, func(a, b locktable.Token) int {
		if l.due[a] != l.due[b] {
			return int(l.due[a] - l.due[b])
		}
		return int(int64(a) - int64(b))
	})
	for _, token := range over {
		l.end(token, "expiry")
	}
}

func (l *refLead) endable(token locktable.Token) bool {
	_, ending := l.ending[token]
	return l.rep.grant(token) != nil && !ending
}

func (l *refLead) end(token locktable.Token, why string) {
	if l.endable(token) {
		l.step(token, why, l.rep.grant(token).keys, nil)
	}
}

func (l *refLead) clockDue() time.Duration {
	return min(time.Second, max(50*time.Millisecond, l.stampAge))
}

// clockRuns says whether the lease clock is needed: for a lease, or for the grace.
func (l *refLead) clockRuns() bool { return len(l.rep.grants) > 0 || l.rep.clock < l.rep.graceUntil }

func (l *refLead) deadline() (at time.Duration, ok bool) {
	earlier := func(d time.Duration) {
		if d != locktable.Forever && (!ok || d < at) {
			at, ok = d, true
		}
	}
	for _, w := range l.queue {
		earlier(w.due)
	}
	if l.hold {
		return at, ok
	}
	for token, due := range l.due {
		if l.endable(token) {
			earlier(due)
		}
	}
	if len(l.pending) < l.t.limits.MaxRecords {
		if l.clockRuns() {
			earlier(l.stamp + l.clockDue())
		}
		if len(l.batch) > 0 || len(l.revokes) > 0 {
			earlier(l.stamp)
		}
	}
	return at, ok
}

func (l *refLead) propose(now time.Duration) (proposal, bool) {
	if l.hold || len(l.pending) >= l.t.limits.MaxRecords {
		return proposal{}, false
	}
	revokes := l.revokes
	l.revokes = nil
	for _, token := range revokes {
		l.end(token, "revoke")
	}
	if len(l.batch) == 0 && !(l.clockRuns() && now-l.stamp >= l.clockDue()) {
		return proposal{}, false
	}
	l.seq++
	p := proposal{by: l.by, seq: l.seq, advance: now - l.stamp, ref: &refRecord{}}
	l.stamp, l.stampAge = now, now-l.born
	for _, i := range l.batch {
		p.ref.entries = append(p.ref.entries, i.entry)
	}
	l.pending = append(l.pending, refPending{seq: l.seq, items: l.batch})
	l.batch = nil
	return p, true
}

func (l *refLead) committed(now time.Duration, p proposal, results []refResult) {
	at := slices.IndexFunc(l.pending, func(x refPending) bool { return x.seq == p.seq })
	if at < 0 {
		return
	}
	for range at {
		l.refused(now, l.pending[0].seq)
	}
	items := l.pending[0].items
	l.pending = l.pending[1:]
	var again []*refCommand
	for i, item := range items {
		again = append(again, l.done(now, item, results[i])...)
	}
	if l.hold {
		for _, c := range again {
			l.undone = append(l.undone, &refItem{entry: refEntry{kind: refBarrier}, cmd: c})
		}
	} else {
		l.again(now, again)
	}
	l.gates()
	l.resume(now)
	l.left()
}

func (l *refLead) again(now time.Duration, cs []*refCommand) {
	slices.SortStableFunc(cs, func(a, b *refCommand) int { return int(int64(a.order) - int64(b.order)) })
	for _, c := range cs {
		l.command(now, c)
	}
}

// done takes what an entry did, and returns the commands that waited for it.
func (l *refLead) done(now time.Duration, item *refItem, res refResult) (again []*refCommand) {
	e := item.entry
	switch e.kind {
	case refReaffirm:
		at := affirmName(e.keys, e.owner)
		cs := l.affirming[at]
		delete(l.affirming, at)
		if res.tokens[0] == 0 {
			return anew(cs)
		}
		for _, c := range cs {
			l.t.counts.Reaffirms++
			l.t.say(c.session, locktable.Granted, c, res.tokens[0])
		}
	case refBarrier:
		if item.cmd != nil {
			item.cmd.barred = true
			again = append(again, item.cmd)
		}
	case refStep:
		if e.end != 0 {
			again = l.ended(item, res.done)
		}
		for i, w := range item.waiters {
			w.flight = false
			l.reserved = remove(l.reserved, w)
			switch {
			case res.tokens[i] != 0:
				l.granted(now, w, res.tokens[i])
				if e.end != 0 {
					l.t.counts.HandOvers++
				}
			case res.spent[i]:
				l.t.counts.BusySpent++
				l.answerAll(w, locktable.Busy, 0)
			default:
				l.back(w)
			}
		}
	}
	return again
}

func (l *refLead) ended(item *refItem, done bool) []*refCommand {
	token := item.entry.end
	waiting := l.ending[token]
	delete(l.ending, token)
	if l.rep.grant(token) == nil {
		delete(l.due, token)
		delete(l.readers, token)
		delete(l.fixed, token)
		delete(l.granter, token)
	}
	switch {
	case item.cmd != nil && done:
		l.t.counts.Releases++
		shown := token
		if item.cmd.flags&locktable.ByKey != 0 {
			shown = 0
		}
		l.t.say(item.cmd.session, locktable.Released, item.cmd, shown)
	case item.cmd != nil:
		l.t.say(item.cmd.session, locktable.NotHeld, item.cmd, token)
	case item.why == "expiry" && done:
		l.t.counts.Expiries++
	case item.why == "revoke" && done:
		l.t.counts.Revocations++
	}
	return waiting
}

func (l *refLead) granted(now time.Duration, w *refCommand, token locktable.Token) {
	l.arm(*l.rep.grant(token), now)
	l.readers[token] = slices.Clone(w.claims)
	l.granter[token] = w.session
	l.t.counts.Grants++
	if len(w.claims) == 0 {
		l.revokes = append(l.revokes, token)
		return
	}
	l.answerAll(w, locktable.Granted, token)
}

// anew sends what was to be reaffirmed to the queue's end: it stood in none.
func anew(cs []*refCommand) []*refCommand {
	for _, c := range cs {
		c.order = 0
	}
	return cs
}

func (l *refLead) back(w *refCommand) {
	if len(w.claims) > 0 {
		w.due = max(w.due, l.ticked+time.Millisecond)
		l.enqueue(w)
	}
}

// notBefore is when a lease ends that was put aside: what is over already fires at the next tick.
func (l *refLead) notBefore(due time.Duration) time.Duration {
	return max(due, l.tickedLeases+time.Millisecond)
}

func (l *refLead) refused(now time.Duration, seq uint64) {
	at := slices.IndexFunc(l.pending, func(x refPending) bool { return x.seq == seq })
	if at < 0 {
		return
	}
	l.hold = true
	l.undone = append(l.undone, l.pending[at].items...)
	l.pending = slices.Delete(slices.Clone(l.pending), at, at+1)
	l.resume(now)
}

// resume decides everything again that was refused, once all in flight is resolved.
func (l *refLead) resume(now time.Duration) {
	if !l.hold || len(l.pending) > 0 {
		return
	}
	l.hold = false
	items := append(l.undone, l.batch...)
	l.undone, l.batch = nil, nil
	var again []*refCommand
	for _, i := range items {
		e := i.entry
		if e.kind == refReaffirm {
			at := affirmName(e.keys, e.owner)
			again = append(again, anew(l.affirming[at])...)
			delete(l.affirming, at)
			continue
		}
		if i.cmd != nil {
			again = append(again, i.cmd)
		}
		if e.kind == refStep {
			if e.end != 0 {
				again = append(again, l.ending[e.end]...)
				delete(l.ending, e.end)
				l.due[e.end] = l.notBefore(l.due[e.end])
			}
			if i.why == "revoke" {
				l.revokes = append(l.revokes, e.end)
			}
			for _, w := range i.waiters {
				w.flight = false
				l.reserved = remove(l.reserved, w)
				l.back(w)
			}
		}
	}
	l.step(0, "", "", nil)
	l.again(now, again)
	if l.stopped {
		l.stop()
	}
	l.left()
}

func (l *refLead) stop() {
	l.stopped = true
	queue := l.queue
	l.queue = nil
	for _, w := range queue {
		l.answerAll(w, locktable.StopQueued, 0)
	}
	l.gates()
}

func (l *refLead) lose() {
	proposed := func(w *refCommand) bool {
		for _, p := range l.pending {
			for _, i := range p.items {
				if slices.Contains(i.waiters, w) {
					return true
				}
			}
		}
		return false
	}
	l.ordered = nil
	tell := func(w *refCommand, kind locktable.Kind) {
		for _, s := range w.claims {
			l.t.say(s, kind, w, 0)
		}
	}
	for _, w := range append(slices.Clone(l.queue), l.reserved...) {
		if w.flight && proposed(w) {
			tell(w, locktable.LostProposed)
		} else {
			tell(w, locktable.LostQueued)
		}
	}
	l.loseCommands()
	for _, s := range l.leaving {
		l.t.say(s, locktable.Left, &refCommand{}, 0)
	}
}

// loseCommands answers releases, reaffirms and what waited for them, by whether their record was proposed.
func (l *refLead) loseCommands() {
	tell := func(items []*refItem, kind locktable.Kind) {
		for _, i := range items {
			if i.cmd != nil && i.entry.kind != refReaffirm {
				l.loseCommand(i.cmd, kind)
			}
			for _, c := range l.ending[i.entry.end] {
				l.loseCommand(c, kind)
			}
			if i.entry.kind == refReaffirm {
				for _, c := range l.affirming[affirmName(i.entry.keys, i.entry.owner)] {
					l.loseCommand(c, kind)
				}
			}
		}
	}
	tell(l.batch, locktable.LostQueued)
	tell(l.undone, locktable.LostQueued)
	for _, p := range l.pending {
		tell(p.items, locktable.LostProposed)
	}
}

// loseCommand answers one. A release may be tried again elsewhere, whatever became of it.
func (l *refLead) loseCommand(c *refCommand, kind locktable.Kind) {
	if !c.acquire {
		kind = locktable.LostProposed
	}
	l.t.say(c.session, kind, c, 0)
}

// gates moves them with the use.
func (l *refLead) gates() {
	keys, _ := l.use()
	l.keysShut = moved(l.keysShut, keys, l.t.limits.MaxKeys)
	l.waitsShut = moved(l.waitsShut, len(l.queue), l.t.limits.MaxTotalWaiters)
}

func moved(shut bool, use, limit int) bool {
	mark := max(1, limit*9/10)
	if use >= mark {
		return true
	}
	return shut && !(4*use < 3*limit)
}

func (l *refLead) use() (keys, held int) {
	seen := map[string]bool{}
	for _, g := range l.rep.grants {
		for _, k := range keysOf(locktable.KeySet(g.keys)) {
			seen[k] = true
		}
	}
	held = len(seen)
	for _, w := range append(slices.Clone(l.queue), l.reserved...) {
		for _, k := range w.names() {
			seen[k] = true
		}
	}
	return len(seen), held
}

func (l *refLead) count(c *locktable.Counts) {
	c.Keys, c.Held = l.use()
	c.Waiters = len(l.queue)
	c.RecordsInFlight = len(l.pending)
	c.KeysGateClosed, c.WaitersGateClosed = l.keysShut, l.waitsShut
}
