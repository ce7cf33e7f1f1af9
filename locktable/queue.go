package locktable

import (
	"cmp"
	"slices"
	"time"
)

// waiterOf makes a waiter of an acquire: its places name its keys, but it stands in no queue yet.
func (t *Table) waiterOf(arrived time.Duration, a *Acquire, order uint64) *waiter {
	w := t.waiters.get()
	w.id, w.order, w.arrived, w.flags = a.ID, order, arrived, a.Flags
	w.lease = uint32(millisUp(a.Lease))
	w.first.waiter, w.sender.waiter = w, w
	w.sender.session = a.Session
	t.adopt(&w.sender)
	return w
}

// adopt lists a claim with its session.
func (t *Table) adopt(c *claim) {
	x := t.sessionOf(c.session)
	if x == nil {
		return
	}
	if c.next = x.claims; c.next != nil {
		c.next.prev = c
	}
	c.prev, x.claims = nil, c
}

// disown takes a claim from its session's list.
func (t *Table) disown(c *claim) {
	if c.session == 0 {
		return
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else if x := t.sessionOf(c.session); x != nil && x.claims == c {
		x.claims = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	c.prev, c.next, c.session = nil, nil, 0
}

// claims are the sessions that wait for w's answer.
func (w *waiter) claims(yield func(*claim) bool) {
	if w.sender.session != 0 && !yield(&w.sender) || !w.copies {
		return
	}
	for _, c := range w.rare.claims {
		if c.session != 0 && !yield(c) {
			return
		}
	}
}

// unclaimed says whether nobody waits for w's answer any more.
func (w *waiter) unclaimed() bool {
	for range w.claims {
		return false
	}
	return true
}

// claimedBy says whether a session waits for w's answer.
func (w *waiter) claimedBy(s Session) bool {
	for c := range w.claims {
		if c.session == s {
			return true
		}
	}
	return false
}

// enqueue puts w at its place in the queue of each of its keys: at the end, unless it comes back from a refused record.
func (t *Table) enqueue(w *waiter) {
	w.state, w.fresh = queued, false
	for p := range w.places {
		k := p.key
		before := k.tail
		if planting && planted(QueueJumped, t.order) {
			before = nil
		}
		for before != nil && before.waiter.order > w.order {
			before = before.prev
		}
		if p.prev = before; before == nil {
			p.next, k.head = k.head, p
		} else {
			p.next, before.next = before.next, p
		}
		if p.next == nil {
			k.tail = p
		} else {
			p.next.prev = p
		}
		if k.waiting++; k.waiting == 1 {
			t.listQueued(k)
		}
	}
	t.waiting++
	t.waitersGate.Use(t.waiting)
}

// unqueue takes w out of all its queues and disarms its deadline. What it leaves behind is touched.
func (t *Table) unqueue(w *waiter) {
	for p := range w.places {
		k := p.key
		if p.prev == nil {
			k.head = p.next
		} else {
			p.prev.next = p.next
		}
		if p.next == nil {
			k.tail = p.prev
		} else {
			p.next.prev = p.prev
		}
		p.prev, p.next = nil, nil
		if k.waiting--; k.waiting == 0 {
			t.unlistQueued(k)
		}
		t.touch(k)
	}
	t.waits.cancel(w)
	t.waiting--
	t.waitersGate.Use(t.waiting)
}

func (t *Table) listQueued(k *key) {
	if k.below = t.queued; k.below != nil {
		k.below.above = k
	}
	t.queued = k
}

func (t *Table) unlistQueued(k *key) {
	if k.above != nil {
		k.above.below = k.below
	} else {
		t.queued = k.below
	}
	if k.below != nil {
		k.below.above = k.above
	}
	k.above, k.below = nil, nil
}

// IdleKeys counts the keys that are free although their first waiter needs nothing else. It is 0 between calls unless
// records are being refused; it walks the keys that have a queue.
func (t *Table) IdleKeys() int {
	n := 0
	for k := t.queued; k != nil; k = k.below {
		if k.head.waiter.grantable() {
			n++
		}
	}
	return n
}

// timeOut answers w, whose wait is over.
func (t *Table) timeOut(w *waiter) {
	t.counts.Timeouts++
	if planting && planted(GrantAfterNo, faultEvery-1) {
		t.reply(w, TimedOut, 0)
		t.waits.schedule(w, never)
		return
	}
	t.dismiss(w, TimedOut)
}

// dismiss takes a queued waiter out with an answer to all its sessions.
func (t *Table) dismiss(w *waiter, kind Kind) {
	t.unqueue(w)
	t.reply(w, kind, 0)
	t.drop(w)
}

// dismissAll empties all queues, in order of arrival.
func (t *Table) dismissAll(kind Kind) {
	var all []*waiter
	for k := t.queued; k != nil; k = k.below {
		for p := k.head; p != nil; p = p.next {
			if p == &p.waiter.first {
				all = append(all, p.waiter)
			}
		}
	}
	slices.SortFunc(all, func(a, b *waiter) int { return cmp.Compare(a.order, b.order) })
	for _, w := range all {
		t.dismiss(w, kind)
	}
}

// reply answers all sessions of w.
func (t *Table) reply(w *waiter, kind Kind, token Token) {
	if planting && t.answered(w) {
		return
	}
	first := w.first.key.name[1:]
	for c := range w.claims {
		if w.flags&InOrder != 0 {
			t.answerInLine(w, c.session, kind, token)
			continue
		}
		t.answer(kind, c.session, w.flags, w.id, token, first)
	}
}

// drop forgets a waiter that stands in no queue.
func (t *Table) drop(w *waiter) {
	if w.flags&Idempotent != 0 {
		delete(t.owners, ownerKey{w.first.key, w.id})
	}
	for c := range w.claims {
		t.disown(c)
	}
	if planting {
		t.unanswer(w)
	}
	*w = waiter{}
	t.waiters.put(w)
}

// Leave says that a session has ended, or (answer) that it sends nothing more and wants what hangs on records in flight
// answered, and then Left. Either way its waiters leave their queues. A grant of it that is in flight is revoked once it
// has committed if the session has ended by then. Locks that it holds stay held.
func (t *Table) Leave(_ time.Duration, s Session, answer bool) {
	if !t.leading {
		if answer {
			t.answer(Left, s, 0, 0, 0, nil)
		}
		return
	}
	x := t.sessionOf(s)
	if x == nil {
		return
	}
	t.dropLines(s, x, answer)
	for c := x.claims; c != nil; {
		w, next := c.waiter, c.next
		switch {
		case w.state == reserved && answer:
		case w.state == reserved:
			x.undecided--
			t.disown(c)
		default:
			t.disown(c)
			if w.unclaimed() {
				t.unqueue(w)
				t.drop(w)
			}
		}
		c = next
	}
	if x.leaving = answer; answer {
		t.leavers = append(t.leavers, s)
	}
	x.ended = x.ended || !answer
	t.settle()
}

// Undelivered says that the answer to a grant was never handed to the socket of its session: if no other copy of it was,
// the token is revoked.
func (t *Table) Undelivered(_ time.Duration, _ Session, first []byte, token Token) {
	if !t.leading {
		return
	}
	name := append(append(t.nameBuf[:0], byte(len(first))), first...)
	k := t.index.find(name, t.index.hash(name))
	if k == nil || k.holder == nil || k.holder.token != token || k.holder.copies == forever {
		return
	}
	g := k.holder
	if g.copies--; g.copies <= 0 {
		t.revokes = append(t.revokes, revoke{g, token})
	}
}

// Stop answers every queued acquire with StopQueued and lets none queue any more. What is in flight goes on.
func (t *Table) Stop(now time.Duration) {
	if !t.leading {
		return
	}
	t.stopped = true
	t.dismissAll(StopQueued)
	t.settle()
}
