package locktable

import (
	"bytes"
	"time"
)

// key is one active key: held, reserved for a grant in flight, or with a queue.
type key struct {
	name   []byte // behind its length byte: the KeySet of this key alone
	hash   uint64
	holder *grant // replicated; nil: free

	// Of the stint:
	reserved     *waiter // whose grant is in flight
	head, tail   *place  // the queue, in order of arrival
	waiting      int32   // length of the queue
	touched      bool    // listed in Table.touched
	above, below *key    // neighbours in the list of keys with a queue
}

// grant is one token and what it holds.
type grant struct {
	token Token
	lease time.Duration
	at    time.Duration // lease clock when it was granted
	owner uint64        // with Idempotent: who asked
	flags Flags         // Idempotent, ByKey
	key   *key          // the first key
	more  []*key        // the others of a set
	set   KeySet        // all keys of a set; not used for a single key

	hold // of the stint
}

func (g *grant) single() bool { return len(g.more) == 0 }

func (g *grant) keys() KeySet {
	if g.single() {
		return g.key.name
	}
	return g.set
}

// replicated is what records alone change.
type replicated struct {
	next      Token         // the next to issue
	clock     time.Duration // the lease clock
	stint     Proposer      // of the latest start entry: no other's records count
	started   bool          // there was a start entry
	graceEnds time.Duration // lease clock at which the grace is over
	addresses string        // of the latest start entry
	grants    int           // how many there are
}

// results are what became of the entries of the record applied last: whether each End was ended (or each Reaffirm's
// token), and the token of each ask, 0 if it was not granted.
type results struct {
	ended   []bool
	affirms []Token
	tokens  []Token
}

// apply changes the replicated part, deterministically. Grants dropped are listed in t.dropped: the stint still speaks
// of them until the record is resolved.
func (t *Table) apply(r *Record) {
	res := &t.results
	res.ended, res.affirms, res.tokens = res.ended[:0], res.affirms[:0], res.tokens[:0]
	counts := true
	if r.Seq == 0 {
		t.start(r)
	} else if counts = r.By == t.rep.stint; counts {
		t.rep.clock += r.Advance
	}
	at := 0
	for i := range r.Entries {
		e := &r.Entries[i]
		ended, affirmed := false, Token(0)
		if counts {
			switch e.Kind {
			case Step:
				ended = e.End != 0 && t.applyEnd(e)
			case Reaffirm:
				affirmed = t.affirmed(e.Keys, e.ID)
			}
		}
		res.ended = append(res.ended, ended)
		res.affirms = append(res.affirms, affirmed)
		for range e.Asks {
			token := Token(0)
			if counts {
				token = t.applyGrant(&r.Asks[at])
			}
			res.tokens = append(res.tokens, token)
			at++
		}
	}
}

func (t *Table) start(r *Record) {
	t.rep.stint = r.By
	t.rep.next = max(t.rep.next, r.Start.FirstToken)
	if !t.rep.started {
		t.rep.started = true
		t.rep.graceEnds = t.rep.clock + r.Start.Grace
	}
	t.rep.addresses = r.Start.Addresses
	if planting && planted(TokenFalls, faultEvery-1) && t.rep.next > 10 {
		t.rep.next -= 10
	}
}

func (t *Table) applyEnd(e *Entry) bool {
	g := e.grant
	if g == nil || g.token != e.End || g.key.holder != g {
		g = t.exactly(e.End, e.Keys)
	}
	if g == nil {
		return false
	}
	g.key.holder = nil
	t.touch(g.key)
	for _, k := range g.more {
		k.holder = nil
		t.touch(k)
	}
	t.rep.grants--
	t.held -= 1 + len(g.more)
	t.dropped = append(t.dropped, g)
	return true
}

// exactly is the grant of a token that holds exactly the keys named, or nil.
func (t *Table) exactly(token Token, keys KeySet) *grant {
	name, rest := keys.first()
	k := t.index.find(name, t.index.hash(name))
	if k == nil || k.holder == nil || k.holder.token != token {
		return nil
	}
	g := k.holder
	if g.single() && len(rest) == 0 || !g.single() && string(g.set) == string(keys) {
		return g
	}
	return nil
}

// affirmed is the token by which a single key is held for an owner of wire 0.3, 0 if it is not.
func (t *Table) affirmed(keys KeySet, owner uint64) Token {
	name, _ := keys.first()
	k := t.index.find(name, t.index.hash(name))
	if k == nil || k.holder == nil || k.holder.flags&Idempotent == 0 || k.holder.owner != owner {
		return 0
	}
	return k.holder.token
}

func (t *Table) applyGrant(a *Ask) Token {
	if t.rep.next > LastToken || t.rep.next == 0 {
		return 0
	}
	name, rest := a.Keys.first()
	first := a.key
	if first == nil || !bytes.Equal(first.name, name) {
		first = t.keyOf(name)
	}
	if first.holder != nil && !(planting && t.ousted(first, rest)) {
		return 0
	}
	for more := rest; len(more) > 0; {
		var name []byte
		name, more = more.first()
		if k := t.index.find(name, t.index.hash(name)); k != nil && k.holder != nil {
			t.touch(first)
			return 0
		}
	}
	g := t.grants.get()
	g.token, g.lease, g.at, g.owner, g.flags = t.rep.next, a.Lease, t.rep.clock, a.Owner, a.Flags
	g.key, first.holder = first, g
	for more := rest; len(more) > 0; {
		var name []byte
		name, more = more.first()
		k := t.keyOf(name)
		k.holder = g
		g.more = append(g.more, k)
	}
	if len(rest) > 0 {
		g.set = append(g.set[:0], a.Keys...)
	}
	if !planting || !planted(TokenReused, uint64(t.rep.clock/1e6)) {
		t.rep.next++
	}
	t.rep.grants++
	t.held += 1 + len(g.more)
	return g.token
}
