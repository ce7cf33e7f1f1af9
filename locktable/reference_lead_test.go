package locktable_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

// refCommand is an acquire or a release; an acquire in a queue is a waiter.
type refCommand struct {
	session locktable.Session
	id      uint64
	keys    string
	flags   locktable.Flags
	token   locktable.Token // of a release
	wait    time.Duration
	lease   time.Duration
	acquire bool

	order  uint64
	barred bool // a barrier has committed since it came: N is true
	due    time.Duration
	claims []locktable.Session // of a waiter: whom the answer is for; 0.3: several
	flight bool                // its grant is decided and not yet committed
	asked  []locktable.Kind    // in order: the answer that is held back, if any
}

func (c *refCommand) names() []string { return keysOf(locktable.KeySet(c.keys)) }

func (c *refCommand) wants(key string) bool { return slices.Contains(c.names(), key) }

type refItem struct {
	entry   refEntry
	why     string // "release", "expiry", "revoke", ""
	cmd     *refCommand
	waiters []*refCommand
}

type refLead struct {
	t    *reference
	rep  *refReplicated
	by   locktable.Proposer
	born time.Duration

	stamp                time.Duration // when the last record was proposed
	stampAge             time.Duration // the stint's age then
	seq                  uint64
	order                uint64
	graceDue             time.Duration
	queue                []*refCommand
	reserved             []*refCommand
	ending               map[locktable.Token][]*refCommand
	affirming            map[string][]*refCommand // by key and owner
	due                  map[locktable.Token]time.Duration
	readers              map[locktable.Token][]locktable.Session // whose A may have been delivered
	fixed                map[locktable.Token]bool                // reaffirmed: never revoked
	granter              map[locktable.Token]locktable.Session
	revokes              []locktable.Token
	batch                []*refItem
	pending              []refPending
	undone               []*refItem
	hold                 bool
	stopped              bool
	gone                 map[locktable.Session]bool
	leaving              []locktable.Session
	undecided            []*refCommand // commands that hang on a record
	ordered              []*refCommand // in-order acquires not yet answered
	keysShut             bool
	waitsShut            bool
	ticked, tickedLeases time.Duration // when deadlines were last looked at
	ties                 bool          // two deadlines fell due at the same instant: their order is not promised
}

type refPending struct {
	seq   uint64
	items []*refItem
}

func newRefLead(t *reference, by locktable.Proposer, now time.Duration) *refLead {
	l := &refLead{t: t, rep: &t.rep, by: by, born: now, stamp: now, ticked: now, tickedLeases: now, ending: map[locktable.Token][]*refCommand{},
		affirming: map[string][]*refCommand{}, due: map[locktable.Token]time.Duration{},
		readers: map[locktable.Token][]locktable.Session{}, fixed: map[locktable.Token]bool{},
		granter: map[locktable.Token]locktable.Session{}, gone: map[locktable.Session]bool{}}
	for _, g := range l.rep.grants {
		l.arm(g, now)
	}
	l.graceDue = now + l.rep.graceUntil - l.rep.clock
	l.gates()
	return l
}

// armed is a lease as the server counts it.
func armed(lease time.Duration) time.Duration {
	ms := time.Millisecond
	return (lease + lease/1000 + ms - 1) / ms * ms
}

func (l *refLead) arm(g refGrant, now time.Duration) {
	l.due[g.token] = l.notBefore(now + armed(g.lease) - (l.rep.clock - g.at))
}

// free says whether the key will be free when all in flight has committed.
func (l *refLead) free(key string) bool {
	for _, w := range l.reserved {
		if w.wants(key) {
			return false
		}
	}
	g := l.rep.holder(key)
	if g == nil {
		return true
	}
	_, ending := l.ending[g.token]
	return ending
}

// grantable returns the waiters that can be granted now, in order of arrival.
func (l *refLead) grantable() (granted []*refCommand) {
	var blocked, taken []string
	for _, w := range l.queue {
		can := true
		for _, k := range w.names() {
			can = can && !slices.Contains(blocked, k) && !slices.Contains(taken, k) && l.free(k)
		}
		if can {
			granted, taken = append(granted, w), append(taken, w.names()...)
		} else {
			blocked = append(blocked, w.names()...)
		}
	}
	return granted
}

// step decides an end (or none) with all grants that follow.
func (l *refLead) step(end locktable.Token, why, keys string, cmd *refCommand) {
	if end != 0 {
		l.ending[end] = nil
	}
	var follow []*refCommand
	if !l.stopped {
		follow = l.grantable()
	}
	e := refEntry{kind: refStep, end: end, keys: keys}
	if n := l.tokensLeft(); n < uint64(len(follow)) {
		l.turnAway(follow[n:])
		l.step(end, why, keys, cmd)
		return
	}
	for _, w := range follow {
		w.flight = true
		l.queue = remove(l.queue, w)
		l.reserved = append(l.reserved, w)
		owner := uint64(0)
		if w.flags&locktable.Idempotent != 0 {
			owner = w.id
		}
		e.asks = append(e.asks, refGrant{keys: w.keys, lease: w.lease,
			flags: w.flags & (locktable.Idempotent | locktable.ByKey), owner: owner})
	}
	if end != 0 || len(follow) > 0 {
		l.batch = append(l.batch, &refItem{entry: e, why: why, cmd: cmd, waiters: follow})
	}
	l.gates()
}

// tokensLeft is how many tokens can still be asked for.
func (l *refLead) tokensLeft() uint64 {
	return uint64(locktable.LastToken-l.rep.next) + 1 - uint64(len(l.reserved))
}

// turnAway answers waiters for whom no token is left.
func (l *refLead) turnAway(ws []*refCommand) {
	for _, w := range ws {
		l.queue = remove(l.queue, w)
		l.t.counts.BusySpent++
		l.answerAll(w, locktable.Busy, 0)
	}
	l.gates()
}

func remove[T comparable](s []T, x T) []T {
	return slices.DeleteFunc(s, func(y T) bool { return y == x })
}

func (l *refLead) command(now time.Duration, c *refCommand) {
	if c.id == 0 {
		c.flags &^= locktable.Idempotent
	}
	if c.order == 0 {
		l.order++
		c.order = l.order
		if c.acquire && c.flags&locktable.InOrder != 0 {
			l.ordered = append(l.ordered, c)
		}
	}
	if l.hold {
		l.undone = append(l.undone, &refItem{entry: refEntry{kind: refBarrier}, cmd: c})
		return
	}
	if c.acquire && l.gone[c.session] {
		return
	}
	if c.acquire {
		l.acquire(now, c)
	} else {
		l.release(now, c)
	}
}

func (l *refLead) release(now time.Duration, c *refCommand) {
	if c.flags&locktable.ByKey != 0 {
		l.releaseByKey(c)
		return
	}
	g := l.rep.grant(c.token)
	if _, ending := l.ending[c.token]; ending && slices.ContainsFunc(c.names(), g.holds) {
		l.ending[c.token] = append(l.ending[c.token], c)
		return
	}
	switch {
	case g != nil && g.keys == c.keys:
		l.step(c.token, "release", c.keys, c)
	case g != nil && slices.ContainsFunc(c.names(), g.holds):
		l.answer(c, locktable.Mismatched, c.token)
	case c.token < l.rep.next || c.barred:
		l.t.counts.NotHelds++
		l.answer(c, locktable.NotHeld, c.token)
	default:
		l.batch = append(l.batch, &refItem{entry: refEntry{kind: refBarrier}, cmd: c})
	}
}

func (l *refLead) releaseByKey(c *refCommand) {
	g := l.rep.holder(string(locktable.KeySet(c.keys).First()))
	if g != nil && g.flags&locktable.ByKey != 0 {
		s, exact := l.granter[g.token], g.keys == c.keys
		_, ending := l.ending[g.token]
		switch mine := s == 0 || s == c.session || l.gone[s]; {
		case mine && exact && ending:
			l.ending[g.token] = append(l.ending[g.token], c)
			return
		case mine && exact:
			l.step(g.token, "release", g.keys, c)
			return
		}
	}
	if c.barred {
		l.t.counts.NotHelds++
		l.answer(c, locktable.NotHeld, 0)
		return
	}
	l.batch = append(l.batch, &refItem{entry: refEntry{kind: refBarrier}, cmd: c})
}

func (l *refLead) active(key string) bool {
	in := func(w *refCommand) bool { return w.wants(key) }
	return l.rep.holder(key) != nil || slices.ContainsFunc(l.queue, in) || slices.ContainsFunc(l.reserved, in)
}

func (l *refLead) acquire(now time.Duration, c *refCommand) {
	if now < l.graceDue {
		l.busy(c, &l.t.counts.BusyGrace)
		return
	}
	if c.flags&locktable.Idempotent != 0 && c.id != 0 && locktable.KeySet(c.keys).Single() && l.sameOwner(now, c) {
		return
	}
	c.claims = []locktable.Session{c.session}
	fresh := 0
	for _, k := range c.names() {
		if !l.active(k) {
			fresh++
		}
	}
	l.enqueue(c)
	open := slices.Contains(l.grantable(), c)
	l.queue = remove(l.queue, c)
	if !open && c.wait == 0 {
		l.t.counts.Timeouts++
		l.answer(c, locktable.TimedOut, 0)
		return
	}
	if keys, _ := l.use(); fresh > 0 && (l.keysShut || keys+fresh > l.t.limits.MaxKeys) {
		l.busy(c, &l.t.counts.BusyKeys)
		return
	}
	if open {
		l.enqueue(c)
		l.step(0, "", "", nil)
		return
	}
	if l.waitsShut {
		l.busy(c, &l.t.counts.BusyWaiters)
		return
	}
	for _, k := range c.names() {
		n := 0
		for _, w := range l.queue {
			if w.wants(k) {
				n++
			}
		}
		if n >= l.t.limits.MaxWaiters {
			l.busy(c, &l.t.counts.BusyKeyWaiters)
			return
		}
	}
	l.t.counts.Queued++
	c.due = max(c.due, l.ticked+time.Millisecond)
	l.enqueue(c)
	l.gates()
}

func (l *refLead) busy(c *refCommand, counter *uint64) {
	*counter++
	l.answer(c, locktable.Busy, 0)
}

func (l *refLead) enqueue(c *refCommand) {
	l.queue = append(l.queue, c)
	slices.SortStableFunc(l.queue, func(a, b *refCommand) int { return int(int64(a.order) - int64(b.order)) })
}

// sameOwner is WIRES.md section 4: one acquire per owner and key.
func (l *refLead) sameOwner(now time.Duration, c *refCommand) bool {
	for _, w := range append(slices.Clone(l.reserved), l.queue...) {
		if w.flags&locktable.Idempotent != 0 && w.id == c.id && w.keys == c.keys {
			if w.flight || !slices.Contains(w.claims, c.session) {
				w.claims = append(w.claims, c.session)
			}
			if !w.flight {
				w.lease, w.wait, w.due = c.lease, c.wait, max(c.due, l.ticked+time.Millisecond)
			}
			return true
		}
	}
	key := c.names()[0]
	g := l.rep.holder(key)
	if g == nil || g.flags&locktable.Idempotent == 0 || g.owner != c.id {
		return false
	}
	if _, ending := l.ending[g.token]; ending {
		return false
	}
	l.fixed[g.token] = true
	l.revokes = remove(l.revokes, g.token)
	at := affirmName(key, c.id)
	if l.affirming[at] = append(l.affirming[at], c); len(l.affirming[at]) == 1 {
		l.batch = append(l.batch, &refItem{entry: refEntry{kind: refReaffirm, keys: key, owner: c.id}, cmd: c})
	}
	return true
}

func affirmName(key string, owner uint64) string { return fmt.Sprint(owner, " ", key) }

func (l *refLead) leave(now time.Duration, s locktable.Session, answer bool) {
	l.ordered = slices.DeleteFunc(l.ordered, func(c *refCommand) bool { return c.session == s })
	for _, w := range append(slices.Clone(l.queue), l.reserved...) {
		if w.flight && answer {
			continue
		}
		w.claims = remove(w.claims, s)
		if len(w.claims) == 0 && !w.flight {
			l.queue = remove(l.queue, w)
		}
	}
	l.gates()
	if !l.hold {
		l.step(0, "", "", nil)
	}
	if answer {
		l.leaving = append(l.leaving, s)
		l.left()
	} else {
		l.gone[s] = true
	}
}

// left tells those who send nothing more and have nothing in flight.
func (l *refLead) left() {
	for _, s := range slices.Clone(l.leaving) {
		if !l.inFlight(s) {
			l.leaving = remove(l.leaving, s)
			l.t.say(s, locktable.Left, &refCommand{}, 0)
		}
	}
}

func (l *refLead) inFlight(s locktable.Session) bool {
	for _, w := range append(slices.Clone(l.reserved), l.queue...) {
		if slices.Contains(w.claims, s) {
			return true
		}
	}
	for _, c := range l.commandsInFlight() {
		if c.session == s {
			return true
		}
	}
	return false
}

// commandsInFlight are those that hang on a record, reserved waiters apart.
func (l *refLead) commandsInFlight() (cs []*refCommand) {
	items := append(slices.Clone(l.batch), l.undone...)
	for _, p := range l.pending {
		items = append(items, p.items...)
	}
	for _, i := range items {
		if i.cmd != nil && i.entry.kind != refReaffirm {
			cs = append(cs, i.cmd)
		}
	}
	for _, waiting := range l.ending {
		cs = append(cs, waiting...)
	}
	for _, waiting := range l.affirming {
		cs = append(cs, waiting...)
	}
	return cs
}

func (l *refLead) undelivered(s locktable.Session, token locktable.Token) {
	rs, ok := l.readers[token]
	if !ok || l.fixed[token] || !slices.Contains(rs, s) {
		return
	}
	at := slices.Index(rs, s)
	if l.readers[token] = slices.Delete(rs, at, at+1); len(l.readers[token]) == 0 {
		l.revokes = append(l.revokes, token)
	}
}

// answer gives the reply of one command that no waiter stands for, or holds it back for its order.
func (l *refLead) answer(c *refCommand, kind locktable.Kind, token locktable.Token) {
	if !c.acquire || c.flags&locktable.InOrder == 0 {
		l.t.say(c.session, kind, c, token)
		return
	}
	if !slices.Contains(l.ordered, c) {
		return // its session has ended
	}
	c.asked, c.token = append(c.asked, kind), token
	for i := 0; i < len(l.ordered); i++ {
		o := l.ordered[i]
		older := slices.ContainsFunc(l.ordered[:i], func(p *refCommand) bool {
			return p.session == o.session && p.keys == o.keys
		})
		if len(o.asked) > 0 && !older {
			l.ordered = slices.Delete(l.ordered, i, i+1)
			l.t.say(o.session, o.asked[0], o, o.token)
			if o.asked[0] == locktable.StopQueued {
				l.silence(o)
			}
			i = -1
		}
	}
}

// silence makes the noes that o held back what o got at a stop, which is nothing on wire 0.1.
func (l *refLead) silence(o *refCommand) {
	for _, p := range l.ordered {
		if p.session != o.session || p.keys != o.keys {
			continue
		}
		if len(p.asked) == 0 {
			return
		}
		if p.asked[0] != locktable.Granted {
			p.asked[0] = locktable.StopQueued
		}
	}
}

func (l *refLead) answerAll(w *refCommand, kind locktable.Kind, token locktable.Token) {
	if len(w.claims) == 1 && w.claims[0] == w.session {
		l.answer(w, kind, token)
		return
	}
	for _, s := range w.claims {
		l.t.say(s, kind, w, token)
	}
}
