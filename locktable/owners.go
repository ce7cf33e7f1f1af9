package locktable

import "time"

// Wire 0.3: an acquire is known by its owner and key, and may be sent again on any connection (WIRES.md section 4).

// ownerKey names a waiter of wire 0.3. The key lives as long as the waiter does.
type ownerKey struct {
	key *key
	id  uint64
}

// affirmKey names a reaffirmation in flight. It outlives the key's state, so it has the name.
type affirmKey struct {
	name string
	id   uint64
}

// sameAcquire takes a for one that is known already, if it is.
func (t *Table) sameAcquire(arrived time.Duration, a *Acquire, order uint64) bool {
	name, _ := a.Keys.first()
	k := t.index.find(name, t.index.hash(name))
	if k == nil {
		return false
	}
	if w := t.owners[ownerKey{k, a.ID}]; w != nil {
		t.joinWaiter(arrived, w, a)
		return true
	}
	g := k.holder
	if g == nil || g.flags&Idempotent == 0 || g.owner != a.ID || g.ending {
		return false
	}
	// From here on no notice of an undelivered answer revokes the token: the one that this frame asks for may be the
	// one that is read.
	g.copies = forever
	c := acquireCommand(arrived, a, order)
	t.count(c, 1)
	at := affirmKey{string(name), a.ID}
	if list := t.affirming[at]; list != nil {
		t.affirming[at] = append(list, c)
		return true
	}
	if t.affirming == nil {
		t.affirming = make(map[affirmKey][]*command)
	}
	t.affirming[at] = append(t.affirming[at], c)
	f := t.open()
	f.record.Entries = append(f.record.Entries, Entry{Kind: Reaffirm, ID: a.ID, Keys: c.keys})
	f.items = append(f.items, item{waitersOf: &waitersOf{affirm: at}})
	return true
}

// joinWaiter makes w the waiter of one more copy: a waiting one of its session, and has one answer for it however often it
// came; one whose grant is in flight of every copy, as if the grant had come before it. Lease and wait are those of the
// copy that came last; once the grant is in flight they are settled.
func (t *Table) joinWaiter(arrived time.Duration, w *waiter, a *Acquire) {
	if w.rare == nil {
		w.rare = &rare{}
	}
	if w.state == reserved {
		t.undecided(a.Session, 1)
		t.undecidedAcquires++
		w.rare.joined++
	}
	if w.state == reserved || !w.claimedBy(a.Session) {
		c := &w.sender
		if c.session != 0 {
			c = &claim{}
			w.rare.claims = append(w.rare.claims, c)
			w.copies = true
		}
		c.session, c.waiter = a.Session, w
		t.adopt(c)
	}
	if w.state == queued {
		w.lease = uint32(millisUp(a.Lease))
		t.waits.cancel(w)
		t.waits.schedule(w, due(arrived, a.Wait))
	}
}

// affirmed answers the acquires that asked whether they hold: those of a token that does not hold arrive anew, and since
// they stood in no queue, at the end.
func (t *Table) affirmedBy(at affirmKey, token Token, again []*command) []*command {
	for _, c := range t.unaffirm(at) {
		if token == 0 {
			again = append(again, c)
			continue
		}
		t.counts.Reaffirms++
		t.answer(Granted, c.acquire.Session, c.acquire.Flags, c.acquire.ID, token, c.keys.First())
	}
	return again
}

// unaffirm takes the acquires of a reaffirmation that is resolved.
func (t *Table) unaffirm(at affirmKey) []*command {
	list := t.affirming[at]
	delete(t.affirming, at)
	for _, c := range list {
		c.order = 0
		t.count(c, -1)
	}
	return list
}
