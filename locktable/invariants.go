package locktable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// ErrInvariant is wrapped by every error of Check.
var ErrInvariant = errors.New("locktable: invariant broken")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvariant}, args...)...)
}

// Check walks the whole table between two calls and reports the first thing that is not as it must be. It is for tests:
// its cost grows with everything that is in the table.
func (t *Table) Check() error {
	held, grants, queuedKeys, waiting := 0, 0, 0, map[*waiter]int{}
	var err error
	fail := func(format string, args ...any) {
		if err == nil {
			err = broken(format, args...)
		}
	}
	t.index.each(func(k *key) { // order does not matter: any broken key will do
		if k.holder == nil && k.reserved == nil && k.head == nil && !(t.refused && k.touched) {
			fail("key %q is active and idle", k.name)
		}
		if g := k.holder; g != nil {
			held++
			if g.key == k {
				grants++
			}
			if e := t.checkGrant(k, g); e != nil && err == nil {
				err = e
			}
		}
		if k.head != nil {
			queuedKeys++
		}
		if e := t.checkQueue(k, waiting); e != nil && err == nil {
			err = e
		}
	})
	if err != nil {
		return err
	}
	for w, places := range waiting { // order does not matter: any broken waiter will do
		if e := t.checkWaiter(w, places); e != nil {
			return e
		}
	}
	listed := 0
	for k := t.queued; k != nil; k = k.below {
		listed++
	}
	switch {
	case held != t.held:
		return broken("%d keys are held, counted %d", held, t.held)
	case grants != t.rep.grants:
		return broken("there are %d grants, counted %d", grants, t.rep.grants)
	case len(waiting) != t.waiting:
		return broken("there are %d waiters, counted %d", len(waiting), t.waiting)
	case listed != queuedKeys:
		return broken("%d keys have a queue, listed %d", queuedKeys, listed)
	case len(t.touched) > 0 && !t.refused:
		return broken("%d keys were touched and not settled", len(t.touched))
	case !t.refused && t.IdleKeys() > 0:
		return broken("%d free keys have a first waiter that needs nothing else", t.IdleKeys())
	case !t.leading && len(waiting) > 0:
		return broken("%d waiters without a stint", len(waiting))
	}
	return t.checkFlights()
}

func (t *Table) checkGrant(k *key, g *grant) error {
	switch {
	case g.token == 0 || g.token >= t.rep.next:
		return broken("key %q is held by token %d, the next is %d", k.name, g.token, t.rep.next)
	case g.key != k && !slices.Contains(g.more, k):
		return broken("key %q is held by token %d, which does not name it", k.name, g.token)
	case g.key.holder != g:
		return broken("token %d holds %q and not its first key %q", g.token, k.name, g.key.name)
	case g.at > t.rep.clock:
		return broken("token %d was granted at %v, the lease clock is %v", g.token, g.at, t.rep.clock)
	case t.leading && !g.ending && !g.tm.linked():
		return broken("token %d has no deadline", g.token)
	case t.leading && len(g.releases) > 0 && !g.ending:
		return broken("releases wait for the end of token %d, which is not ending", g.token)
	case k.reserved != nil && !g.ending:
		return broken("key %q is held by token %d and reserved", k.name, g.token)
	}
	return nil
}

func (t *Table) checkQueue(k *key, waiting map[*waiter]int) error {
	n := int32(0)
	var prev *place
	for p := k.head; p != nil; p = p.next {
		switch {
		case p.key != k:
			return broken("key %q has a place of key %q in its queue", k.name, p.key.name)
		case p.prev != prev:
			return broken("the queue of %q is torn", k.name)
		case prev != nil && prev.waiter.order >= p.waiter.order:
			return broken("the queue of %q is out of order: %d before %d", k.name, prev.waiter.order, p.waiter.order)
		case p.waiter.state != queued:
			return broken("a waiter of %q is queued in state %d", k.name, p.waiter.state)
		}
		waiting[p.waiter]++
		prev = p
		n++
	}
	if k.tail != prev || n != k.waiting {
		return broken("the queue of %q has %d waiters, counted %d", k.name, n, k.waiting)
	}
	if k.reserved != nil && k.reserved.state != reserved {
		return broken("key %q is reserved for a waiter in state %d", k.name, k.reserved.state)
	}
	return nil
}

func (t *Table) checkWaiter(w *waiter, places int) error {
	want := 0
	for range w.places {
		want++
	}
	if places != want {
		return broken("a waiter for %q stands in %d queues of %d", w.first.key.name, places, want)
	}
	if !w.tm.linked() && w.tm.at() < never {
		return broken("a waiter for %q has no deadline", w.first.key.name)
	}
	if w.unclaimed() {
		return broken("a waiter for %q belongs to nobody", w.first.key.name)
	}
	for c := range w.claims {
		found := false
		if x := t.sessionOf(c.session); x != nil {
			for at := x.claims; at != nil; at = at.next {
				found = found || at == c
			}
		}
		if !found {
			return broken("a waiter for %q is not listed with its session", w.first.key.name)
		}
	}
	if w.flags&Idempotent != 0 && t.owners[ownerKey{w.first.key, w.id}] != w {
		return broken("the waiter of owner %d for %q is not known by it", w.id, w.first.key.name)
	}
	return nil
}

func (t *Table) checkFlights() error {
	asked, acquires, releases := 0, 0, 0
	for _, f := range slices.Concat(t.undone, t.batch, t.pending) {
		asked += len(f.waiters)
		if len(f.items) != len(f.record.Entries) || len(f.waiters) != len(f.record.Asks) {
			return broken("a record of %d entries and %d asks concerns %d and %d",
				len(f.record.Entries), len(f.record.Asks), len(f.items), len(f.waiters))
		}
		for _, w := range f.waiters {
			if w.fresh {
				acquires++
			}
			if w.rare != nil {
				acquires += w.rare.joined
			}
			for p := range w.places {
				if p.key.reserved != w {
					return broken("key %q is not reserved for the waiter whose grant is in flight", p.key.name)
				}
			}
		}
		for i := range f.items {
			it := &f.items[i]
			releases += len(it.wait().commands)
			if it.end != nil {
				releases += len(it.end.releases)
				if !it.end.ending {
					return broken("the end of token %d is in flight, and it is not ending", it.end.token)
				}
			}
			if it.release.session != 0 {
				releases++
			}
			acquires += len(t.affirming[it.wait().affirm])
		}
	}
	for _, c := range t.later {
		if c.kind == anAcquire {
			acquires++
		} else {
			releases++
		}
	}
	if asked != t.asked || acquires != t.undecidedAcquires || releases != t.undecidedReleases {
		return broken("in flight are %d asks, %d acquires, %d releases; counted %d, %d, %d",
			asked, acquires, releases, t.asked, t.undecidedAcquires, t.undecidedReleases)
	}
	return nil
}

// Describe writes one line an active key, in the order of the keys: its holder and its queue.
func (t *Table) Describe(out io.Writer) error {
	var keys []*key
	t.index.each(func(k *key) { keys = append(keys, k) }) // order does not matter: sorted next
	slices.SortFunc(keys, func(a, b *key) int { return bytes.Compare(a.name[1:], b.name[1:]) })
	for _, k := range keys {
		if _, err := fmt.Fprintf(out, "%s: %s%s\n", k.name[1:], k.describeHolder(), k.describeQueue()); err != nil {
			return err
		}
	}
	return nil
}

func (k *key) describeHolder() string {
	s := "free"
	if g := k.holder; g != nil {
		s = fmt.Sprintf("token=%d lease=%v", g.token, g.lease)
		if !g.single() {
			s += fmt.Sprintf(" set of %d", 1+len(g.more))
		}
		if g.ending {
			s += " ending"
		}
	}
	if k.reserved != nil {
		s += fmt.Sprintf(" reserved for %d", k.reserved.id)
	}
	return s
}

func (k *key) describeQueue() string {
	if k.head == nil {
		return ""
	}
	s := "; queue"
	for p := k.head; p != nil; p = p.next {
		s += fmt.Sprintf(" %d", p.waiter.id)
		if at := p.waiter.tm.at(); at < never {
			s += fmt.Sprintf("(until %v)", time.Duration(at)*time.Millisecond)
		}
	}
	return s
}
