package locktable_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

// The reference: the rules of PROTOCOL.md section 3, WIRES.md and ARCHITECTURE.md's rules of the log with slices and linear
// scans. This file has what entries change; reference_lead_test.go what only a leader has.

type refGrant struct {
	token locktable.Token
	keys  string
	lease time.Duration
	flags locktable.Flags // Idempotent, ByKey
	owner uint64
	at    time.Duration // of the lease clock
}

func (g refGrant) holds(key string) bool {
	return slices.Contains(keysOf(locktable.KeySet(g.keys)), key)
}

type refEntryKind int

const (
	refStep refEntryKind = iota
	refReaffirm
	refStart
	refBarrier
)

type refEntry struct {
	kind  refEntryKind
	end   locktable.Token // refStep: ends this token, if not 0
	keys  string
	asks  []refGrant
	owner uint64
	terms locktable.StartTerms
}

type refRecord struct {
	entries []refEntry
}

type refResult struct {
	done   bool
	tokens []locktable.Token // of the asks, or of a reaffirm; 0: not done
	spent  []bool
}

type refReplicated struct {
	grants     []refGrant // in the order of their tokens
	next       locktable.Token
	clock      time.Duration
	stint      locktable.Proposer
	graceUntil time.Duration // of the lease clock
}

func (r *refReplicated) text() string {
	return fmt.Sprint(r.grants, r.next, r.clock, r.stint, r.graceUntil)
}

func (r *refReplicated) holder(key string) *refGrant {
	for i := range r.grants {
		if r.grants[i].holds(key) {
			return &r.grants[i]
		}
	}
	return nil
}

func (r *refReplicated) grant(token locktable.Token) *refGrant {
	for i := range r.grants {
		if r.grants[i].token == token {
			return &r.grants[i]
		}
	}
	return nil
}

func (r *refReplicated) exact(token locktable.Token, keys string) bool {
	g := r.grant(token)
	return g != nil && g.keys == keys
}

func (r *refReplicated) apply(p proposal) []refResult {
	results := make([]refResult, len(p.ref.entries))
	if p.seq == 0 {
		r.stint = p.by
	} else if p.by != r.stint {
		for i, e := range p.ref.entries {
			results[i] = refResult{tokens: make([]locktable.Token, max(1, len(e.asks))), spent: make([]bool, len(e.asks))}
		}
		return results
	}
	r.clock += p.advance
	for i, e := range p.ref.entries {
		results[i] = r.entry(e)
	}
	return results
}

func (r *refReplicated) entry(e refEntry) (res refResult) {
	switch e.kind {
	case refStart:
		if e.terms.FirstToken > r.next {
			r.next = e.terms.FirstToken
		}
		if e.terms.Grace > 0 {
			r.graceUntil = r.clock + e.terms.Grace
		}
	case refReaffirm:
		token := locktable.Token(0)
		if g := r.holder(e.keys); g != nil && g.flags&locktable.Idempotent != 0 && g.owner == e.owner {
			token = g.token
		}
		res.tokens = append(res.tokens, token)
	case refStep:
		if e.end != 0 && r.exact(e.end, e.keys) {
			res.done = true
			r.grants = slices.DeleteFunc(slices.Clone(r.grants), func(g refGrant) bool { return g.token == e.end })
		}
		for _, ask := range e.asks {
			free := true
			for _, k := range keysOf(locktable.KeySet(ask.keys)) {
				free = free && r.holder(k) == nil
			}
			ask.token, ask.at = 0, r.clock
			if free && r.next <= locktable.LastToken {
				ask.token, r.next = r.next, r.next+1
				r.grants = append(slices.Clone(r.grants), ask)
			}
			res.tokens = append(res.tokens, ask.token)
			res.spent = append(res.spent, free && ask.token == 0)
		}
	}
	return res
}

// reference is the obvious table.
type reference struct {
	limits   locktable.Limits
	sink     locktable.Sink
	rep      refReplicated
	lead     *refLead
	starting locktable.Proposer // of the start entry that is out
	hasStart bool
	counts   locktable.Counts
}

func newReference(limits locktable.Limits, first locktable.Token, sink locktable.Sink) *reference {
	return &reference{limits: limits, sink: sink, rep: refReplicated{next: first}}
}

func (t *reference) Leading() bool { return t.lead != nil }
func (t *reference) Check() error  { return nil }

func (t *reference) Begin(now time.Duration, by locktable.Proposer, terms locktable.StartTerms) proposal {
	t.starting, t.hasStart = by, true
	return proposal{by: by, ref: &refRecord{entries: []refEntry{{kind: refStart, terms: terms}}}}
}

func (t *reference) Commit(now time.Duration, p proposal) {
	results := t.rep.apply(p)
	switch {
	case p.seq == 0 && t.hasStart && p.by == t.starting:
		t.Lose(now)
		t.lead = newRefLead(t, p.by, now)
	case t.lead != nil && p.by == t.lead.by:
		t.lead.committed(now, p, results)
	case t.lead != nil:
		t.Lose(now)
	}
}

func (t *reference) Refuse(now time.Duration, by locktable.Proposer, seq uint64) {
	switch {
	case seq == 0 && t.hasStart && by == t.starting:
		t.hasStart = false
	case t.lead != nil && by == t.lead.by:
		t.lead.refused(now, seq)
	}
}

func (t *reference) restore(now time.Duration, from *reference) {
	t.rep = from.rep
	t.Lose(now)
}

func (t *reference) Lose(now time.Duration) {
	t.hasStart = false
	if l := t.lead; l != nil {
		t.lead = nil
		l.lose()
	}
}

func (t *reference) Stop(now time.Duration) {
	if l := t.lead; l != nil {
		l.stop()
	}
}

func (t *reference) Acquire(now time.Duration, a *locktable.Acquire) {
	c := &refCommand{session: a.Session, id: a.ID, keys: string(a.Keys), flags: a.Flags, wait: a.Wait, lease: a.Lease,
		acquire: true, due: dueAfter(now, a.Wait)}
	t.lead.command(now, c)
}

func (t *reference) Release(now time.Duration, r *locktable.Release) {
	t.lead.command(now, &refCommand{session: r.Session, id: r.ID, keys: string(r.Keys), flags: r.Flags, token: r.Token})
}

func (t *reference) Leave(now time.Duration, s locktable.Session, answer bool) {
	if t.lead != nil {
		t.lead.leave(now, s, answer)
	} else if answer {
		t.say(s, locktable.Left, &refCommand{}, 0)
	}
}

func (t *reference) Undelivered(now time.Duration, s locktable.Session, first []byte, token locktable.Token) {
	if t.lead != nil {
		t.lead.undelivered(s, token)
	}
}

func (t *reference) Tick(now time.Duration) {
	if t.lead != nil {
		t.lead.tick(now)
	}
}

func (t *reference) Deadline() (time.Duration, bool) {
	if t.lead == nil {
		return 0, false
	}
	return t.lead.deadline()
}

func (t *reference) Propose(now time.Duration) (proposal, bool) {
	if t.lead == nil {
		return proposal{}, false
	}
	return t.lead.propose(now)
}

func (t *reference) Counts() locktable.Counts {
	c := t.counts
	if t.lead != nil {
		t.lead.count(&c)
	}
	return c
}

func (t *reference) say(s locktable.Session, kind locktable.Kind, c *refCommand, token locktable.Token) {
	var key []byte
	if c.keys != "" {
		key = locktable.KeySet(c.keys).First()
	}
	t.sink.Reply(&locktable.Reply{Session: s, Kind: kind, Flags: c.flags, ID: c.id, Token: token, Key: key})
}

func dueAfter(now, wait time.Duration) time.Duration {
	if wait == locktable.Forever {
		return locktable.Forever
	}
	return now + wait
}
