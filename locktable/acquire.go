package locktable

import "time"

// named is one key of an acquire that is being decided: its state, or where to make it.
type named struct {
	name []byte
	hash uint64
	key  *key // nil: not active
}

// Acquire decides an acquire. The table must be leading; a and its keys are the caller's again when it returns. The
// answer comes to the sink at once, or when the record it rests on has committed, or when its turn or its deadline comes.
func (t *Table) Acquire(now time.Duration, a *Acquire) {
	t.order++
	if a.Flags&Idempotent != 0 && (a.ID == 0 || !a.Keys.Single()) {
		nobody := *a
		nobody.Flags &^= Idempotent
		a = &nobody
	}
	if t.refused {
		t.putOff(acquireCommand(now, a, t.order))
		return
	}
	t.acquire(now, now, a, t.order)
	t.settle()
}

// TurnAway answers an acquire that its caller refuses for load with Busy: at once, or, InOrder, in its turn. The table must
// be leading; a and its keys are the caller's again when it returns.
func (t *Table) TurnAway(now time.Duration, a *Acquire) {
	t.order++
	if t.refused && a.Flags&InOrder != 0 { // older ones may have been put off, and are in no line yet
		c := acquireCommand(now, a, t.order)
		c.turnedAway = true
		t.putOff(c)
		return
	}
	t.answerAcquire(a, Busy)
}

// acquire decides an acquire that arrived then: its wait counts from that, however often it is decided again.
func (t *Table) acquire(now, arrived time.Duration, a *Acquire, order uint64) {
	if now < t.graceOver {
		t.counts.BusyGrace++
		t.answerAcquire(a, Busy)
		return
	}
	if a.Flags&Idempotent != 0 && t.sameAcquire(arrived, a, order) {
		return
	}
	keys := t.lookUp(a.Keys)
	fresh, open, full := 0, true, false
	for i := range keys {
		switch k := keys[i].key; {
		case k == nil:
			fresh++
		default:
			open = open && k.free() && k.head == nil
			full = full || int(k.waiting) >= t.limits.MaxWaiters
		}
	}
	open = open || planting && t.doubled(keys)
	switch {
	case !open && (a.Wait == 0 || t.stopped):
		t.counts.Timeouts++
		t.answerAcquire(a, TimedOut)
		return
	case fresh > 0 && (t.keysGate.Closed() || t.index.count+fresh > t.limits.MaxKeys):
		t.counts.BusyKeys++
		t.answerAcquire(a, Busy)
		return
	case !open && (t.waitersGate.Closed() || t.waiting >= t.limits.MaxTotalWaiters):
		t.counts.BusyWaiters++
		t.answerAcquire(a, Busy)
		return
	case !open && full:
		t.counts.BusyKeyWaiters++
		t.answerAcquire(a, Busy)
		return
	case open && t.spent(0):
		t.counts.BusySpent++
		t.answerAcquire(a, Busy)
		return
	}
	w := t.place(arrived, a, order, keys)
	w.tm.note(due(arrived, a.Wait))
	if open {
		w.fresh = true
		t.readyList = append(t.readyList[:0], w)
		t.step(nil, ByRelease, t.readyList)
		return
	}
	t.counts.Queued++
	t.enqueue(w)
	t.waits.schedule(w, w.tm.at())
}

// due is the tick at which a wait is over that began with an arrival.
func due(arrived, wait time.Duration) int64 {
	if wait >= Forever-arrived {
		return never
	}
	return min(millisUp(arrived+wait), never)
}

// lookUp finds the keys of a set. What it returns is valid until the next call.
func (t *Table) lookUp(set KeySet) []named {
	n := 0
	for rest := set; len(rest) > 0; n++ {
		at := &t.named[n]
		at.name, rest = rest.first()
		at.hash = t.index.hash(at.name)
		at.key = t.index.find(at.name, at.hash)
	}
	return t.named[:n]
}

// place makes a waiter for the keys looked up, and the keys that are not active yet.
func (t *Table) place(arrived time.Duration, a *Acquire, order uint64, keys []named) *waiter {
	w := t.waiterOf(arrived, a, order)
	for i := range keys {
		k := keys[i].key
		if k == nil {
			k = t.newKey(keys[i].name, keys[i].hash)
		}
		if i == 0 {
			w.first.key = k
			continue
		}
		if w.rare == nil {
			w.rare = &rare{places: make([]place, len(keys)-1)}
		}
		w.rare.places[i-1] = place{key: k, waiter: w}
	}
	if a.Flags&Idempotent != 0 {
		if t.owners == nil {
			t.owners = make(map[ownerKey]*waiter)
		}
		t.owners[ownerKey{w.first.key, w.id}] = w
	}
	if a.Flags&InOrder != 0 {
		t.joinLine(w)
	}
	return w
}

// answerAcquire answers an acquire that becomes no waiter.
func (t *Table) answerAcquire(a *Acquire, kind Kind) {
	if a.Flags&InOrder != 0 && t.answerBehindLine(a, kind) {
		return
	}
	t.answer(kind, a.Session, a.Flags, a.ID, 0, a.Keys.First())
}

// Release decides a release. The table must be leading; r and its keys are the caller's again when it returns.
func (t *Table) Release(now time.Duration, r *Release) {
	t.order++
	if t.refused {
		t.putOff(releaseCommand(r, t.order))
		return
	}
	t.release(r, t.order, nil)
	t.settle()
}

// release decides r; c is the command that it comes from if it has waited for a record before.
func (t *Table) release(r *Release, order uint64, c *command) {
	g, exact, unsure := t.namedBy(r)
	switch {
	case g != nil && g.ending:
		if c == nil {
			c = releaseCommand(r, order)
		}
		t.count(c, 1)
		g.releases = append(g.releases, c)
	case exact && planting && planted(LostRelease, t.order):
		t.answer(Released, r.Session, r.Flags, r.ID, r.Token, r.Keys.First())
	case exact:
		it := t.end(g, ByRelease)
		it.release = release{session: r.Session, id: r.ID, order: order, flags: r.Flags}
		t.undecided(r.Session, 1)
		t.undecidedReleases++
	case g != nil:
		t.answer(Mismatched, r.Session, r.Flags, r.ID, r.Token, r.Keys.First())
	case unsure && (c == nil || !c.barred):
		if c == nil {
			c = releaseCommand(r, order)
		}
		t.count(c, 1)
		t.bar(c)
	default:
		t.counts.NotHelds++
		t.answer(NotHeld, r.Session, r.Flags, r.ID, r.Token, r.Keys.First())
	}
}

// namedBy is the grant that a release means and whether it names exactly its keys. With none, unsure says that only a
// barrier can tell: the token may be one that is about to be issued, or has been by a leader that this node does not know.
func (t *Table) namedBy(r *Release) (g *grant, exact, unsure bool) {
	if r.Flags&ByKey != 0 {
		name, _ := r.Keys.first()
		k := t.index.find(name, t.index.hash(name))
		if k == nil || k.holder == nil || k.holder.flags&ByKey == 0 {
			return nil, false, true
		}
		if g = k.holder; g.session != r.Session && !t.over(g.session) {
			return nil, false, true
		}
		return g, true, false
	}
	if planting && planted(StaleRelease, t.order) {
		name, _ := r.Keys.first()
		if k := t.index.find(name, t.index.hash(name)); k != nil && k.holder != nil && k.holder.single() {
			return k.holder, true, false
		}
	}
	if g = t.exactly(r.Token, r.Keys); g != nil {
		return g, true, false
	}
	for rest := r.Keys; len(rest) > 0; {
		var name []byte
		name, rest = rest.first()
		if k := t.index.find(name, t.index.hash(name)); k != nil && k.holder != nil && k.holder.token == r.Token {
			return k.holder, false, false
		}
	}
	return nil, false, r.Token >= t.rep.next
}

// bar puts c behind a barrier: one serves all that come before it is proposed.
func (t *Table) bar(c *command) {
	f := t.open()
	if n := len(f.items); n > 0 && f.record.Entries[n-1].Kind == Barrier {
		f.items[n-1].commands = append(f.items[n-1].commands, c)
		return
	}
	f.record.Entries = append(f.record.Entries, Entry{Kind: Barrier})
	f.items = append(f.items, item{waitersOf: &waitersOf{commands: []*command{c}}})
}
