package locktable_test

import (
	"slices"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

// What must hold, by the numbers of the invariants:
//
//	1 one believer a key, and none without a token that lives    2 tokens grow
//	3 every answer is true                                       4 first come first served, a stint and key
//	5 after the last fault all comes to rest, nothing is forgotten, no waiter that could be granted is overlooked
//	6 equal prefixes, equal states                               7 no lease ends before send + lease on the client's clock
type checker struct {
	canon    []*proposal // committed records, in order
	digests  [][]byte    // the snapshot after each
	rep      refReplicated
	live     map[locktable.Token]refGrant
	ended    map[locktable.Token]string
	maker    map[locktable.Token]locktable.Proposer
	unread   map[locktable.Token]time.Duration // when its leader was told that no A of it was handed over
	granted  map[int]locktable.Token           // by op
	arrivals map[string]int                    // by stint and key: the order of the last waiter granted
	counts   map[string]int
}

func (c *checker) init() {
	c.rep.next = 1
	c.live, c.ended = map[locktable.Token]refGrant{}, map[locktable.Token]string{}
	c.maker, c.unread = map[locktable.Token]locktable.Proposer{}, map[locktable.Token]time.Duration{}
	c.granted, c.arrivals = map[int]locktable.Token{}, map[string]int{}
	c.counts = map[string]int{}
}

// committed looks at the record that a node has just applied.
func (w *world) committed(n *worldNode, p *proposal) {
	i := n.applied - 1
	digest := n.table.Snapshot(nil)
	if i < len(w.canon) {
		must(w.canon[i] == p, "6: node %d applied another record at %d", n.id, i)
		must(string(w.digests[i]) == string(digest), "6: node %d has another state at %d", n.id, i)
		return
	}
	w.canon, w.digests = append(w.canon, p), append(w.digests, digest)
	if p == nil {
		return
	}
	var r locktable.Record
	must(locktable.DecodeRecord(p.bytes, &r) == nil, "6: record unreadable")
	ref := asReference(&r)
	results := w.rep.apply(ref)
	must(n.table.NextToken() == w.rep.next, "2: next token %d, want %d", n.table.NextToken(), w.rep.next)
	for i, e := range ref.ref.entries {
		if e.kind == refStep {
			w.step(n, p, e, results[i], r.Entries[i].Why)
		} else if e.kind == refReaffirm && results[i].tokens[0] != 0 {
			w.counts["reaffirm"]++
		}
	}
	keys := 0
	for _, g := range w.rep.grants {
		keys += len(keysOf(locktable.KeySet(g.keys)))
	}
	must(n.table.Counts().Held == keys, "6: node %d has %d keys held, want %d", n.id, n.table.Counts().Held, keys)
}

func (w *world) step(n *worldNode, p *proposal, e refEntry, res refResult, why locktable.EndReason) {
	if res.done {
		w.end(n, p, e.end, []string{"release", "expiry", "revoke"}[why])
	} else if e.end != 0 {
		w.counts["not done"]++
	}
	if len(e.asks) > 1 {
		w.counts["several"]++
	}
	for i, ask := range e.asks {
		token := res.tokens[i]
		if token == 0 {
			w.counts["not done"]++
			continue
		}
		op := w.opOf(ask.lease)
		must(ask.keys == string(op.keys), "3: op %d asked for %q, granted %q", op.uid, op.keys, ask.keys)
		must(!op.denied, "3: op %d is granted after a definite no", op.uid)
		ask.token, ask.at = token, w.rep.clock
		w.live[token], w.maker[token], w.granted[op.uid] = ask, p.by, token
		w.counts["grant"]++
		if op.copies > 1 {
			continue // its place is that of the copy that came first, and which that was depends
		}
		for _, k := range keysOf(op.keys) {
			at := string(p.by.Incarnation[:]) + string(rune(p.by.Stint)) + k
			must(op.order > w.arrivals[at], "4: key %s granted out of order", k)
			w.arrivals[at] = op.order
		}
	}
}

// opOf finds the acquire of a lease: no two have the same.
func (w *world) opOf(lease time.Duration) *worldOp {
	return w.ops[int(lease%time.Second/time.Millisecond)]
}

func (w *world) end(n *worldNode, p *proposal, token locktable.Token, why string) {
	g := w.live[token]
	delete(w.live, token)
	w.ended[token] = why
	w.counts[why]++
	op := w.opOf(g.lease)
	switch why {
	case "release":
		must(op.released == token || op.state == gone, "7: token %d released by nobody", token)
		return
	case "revoke":
		must(!op.believes() || op.token != token, "1: token %d revoked while its client holds", token)
	case "expiry":
		at, unread := w.unread[token]
		must(!unread || p.by != w.maker[token] || n.clock < at+2*time.Second, "5: revoke of %d forgotten", token)
		must(op.released != 0 || op.client.clock >= op.sent+op.lease, "7: token %d ended at %v of %v", token,
			op.client.clock-op.sent, op.lease)
	}
}

// undelivered notes that a leader was told that its grant's only A was not handed over: a revoke is due.
func (w *world) undelivered(n *worldNode, c worldCommand) {
	g, live := w.live[c.token]
	if live && w.opOf(g.lease).client.wire != wire03 && n.table.Leading() && n.by == w.maker[c.token] {
		w.unread[c.token] = n.clock
	}
}

// answer is an answer read by a client.
func (w *world) answer(conn *worldConn, a worldAnswer) {
	w.counts[answerName(a.kind)]++
	if !a.acquire {
		conn.releases = removeOne(conn.releases, a.token)
		switch a.kind {
		case locktable.Released:
			must(w.ended[a.token] == "release", "3: R of %d, which was %q", a.token, w.ended[a.token])
		case locktable.NotHeld:
			_, live := w.live[a.token]
			must(!live, "3: N of %d, which holds", a.token)
		}
		if a.kind == 0 && conn.client.wire == wire03 {
			w.brokenOff(conn)
		}
		return
	}
	op := conn.asked[int(a.id)]
	delete(conn.asked, int(a.id))
	if a.kind == 0 && op == nil {
		return
	}
	must(op != nil, "3: %s answers nothing that was asked on this connection", answerName(a.kind))
	switch {
	case a.kind == locktable.Granted:
		w.granted3(op, a.token)
	case op.client.wire == wire03:
		if op.state == asked {
			op.state = no
			if a.kind == 0 {
				op.state = resend
			}
		}
		if a.kind == 0 {
			w.brokenOff(conn)
		}
	default:
		op.denied = true
		must(w.granted[op.uid] == 0, "3: a definite no for op %d, which was granted token %d", op.uid, w.granted[op.uid])
		if op.state == asked {
			op.state = no
		}
	}
}

func removeOne(s []locktable.Token, x locktable.Token) []locktable.Token {
	if i := slices.Index(s, x); i >= 0 {
		return slices.Delete(s, i, i+1)
	}
	return s
}

func answerName(k locktable.Kind) string {
	if k == 0 {
		return "moved"
	}
	return kinds[k]
}

func (w *world) granted3(op *worldOp, token locktable.Token) {
	_, live := w.live[token]
	must(token < w.rep.next, "3: A of %d, which was never issued", token)
	if live {
		must(w.opOf(w.live[token].lease) == op, "3: A of %d to a stranger", token)
	}
	must(op.token == 0 || op.token == token || op.client.wire == wire03, "3: two A for one acquire")
	must(token > op.floor, "2: token %d seen after %d", token, op.floor)
	op.client.seen = max(op.client.seen, token)
	if op.state != asked {
		return
	}
	op.state, op.token, op.until = held, token, op.sent+op.lease
	if !op.believes() {
		return
	}
	for _, other := range w.ops {
		if other != op && other.believes() {
			for _, k := range keysOf(op.keys) {
				must(!slices.Contains(keysOf(other.keys), k), "1: %d and %d hold %s at once", op.token, other.token, k)
			}
		}
	}
	must(live, "1: A of %d, which is over (%s)", token, w.ended[token])
}
