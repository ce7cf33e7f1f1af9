package locktable

import "time"

// Lose ends the stint: what was only queued or decided is LostQueued, what hung on a record in flight LostProposed.
// Nothing happens on a table that does not lead, but a start entry in flight begins no stint any more.
func (t *Table) Lose(time.Duration) {
	t.starting = false
	if !t.leading {
		return
	}
	t.leading = false
	for _, row := range t.sessions {
		for i := range row {
			row[i].lines, row[i].held = nil, 0
		}
	}
	t.dismissAll(LostQueued)
	for _, f := range append(t.undone, t.batch...) {
		t.loseWaiters(f, LostQueued)
	}
	for _, f := range t.pending {
		t.loseWaiters(f, LostProposed)
	}
	for _, c := range t.later {
		t.loseCommand(c, LostQueued)
	}
	for _, f := range append(t.undone, t.batch...) {
		t.loseCommands(f, LostQueued)
	}
	for _, f := range t.pending {
		t.loseCommands(f, LostProposed)
	}
	for _, s := range t.leavers {
		if x := t.sessionOf(s); x != nil && x.leaving {
			t.answer(Left, s, 0, 0, 0, nil)
		}
	}
	keysGate := t.keysGate
	t.stint = stint{me: t.me, keysGate: keysGate, waitersGate: NewGate(t.limits.MaxTotalWaiters)}
	t.index.each(func(k *key) { // order does not matter: each key is forgotten by itself
		if g := k.holder; g != nil {
			g.hold = hold{}
		}
		k.reserved = nil
		t.touch(k)
	})
	t.reap()
}

func (t *Table) loseWaiters(f *flight, kind Kind) {
	for _, w := range f.waiters {
		t.unreserve(w)
		t.reply(w, kind, 0)
		t.drop(w)
	}
}

// loseCommands answers what hung on f beside its waiters.
func (t *Table) loseCommands(f *flight, kind Kind) {
	for i := range f.items {
		it := &f.items[i]
		for _, c := range it.wait().commands {
			t.loseCommand(c, LostProposed)
		}
		for _, c := range t.affirming[it.wait().affirm] {
			t.loseCommand(c, kind)
		}
		delete(t.affirming, it.wait().affirm)
		if it.end == nil {
			continue
		}
		if r := &it.release; r.session != 0 {
			t.answer(LostProposed, r.session, r.flags, r.id, it.end.token, it.end.key.name[1:])
		}
		for _, c := range it.end.releases {
			t.loseCommand(c, LostProposed)
		}
	}
}

// loseCommand answers a command that was not decided. A release may be tried again elsewhere whatever became of it.
func (t *Table) loseCommand(c *command, kind Kind) {
	if c.kind == anAcquire {
		t.answer(kind, c.acquire.Session, c.acquire.Flags, c.acquire.ID, 0, c.keys.First())
		return
	}
	t.answer(LostProposed, c.release.Session, c.release.Flags, c.release.ID, c.release.Token, c.keys.First())
}
