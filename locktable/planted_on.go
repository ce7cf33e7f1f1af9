//go:build planted

package locktable

import (
	"bytes"
	"fmt"
)

const planting = true

var plantedFault Fault

// Plant chooses the fault of a build with the tag planted, by its name; none if it is empty. Call it before New.
func Plant(name string) error {
	for f, n := range faultNames {
		if n == name {
			plantedFault = Fault(f)
			return nil
		}
	}
	return fmt.Errorf("locktable: no fault %q; there are %q", name, faultNames)
}

// planted says whether fault f happens now: once every few dozen opportunities, and the same on every node, since n is
// of the replicated part or the fault is of the stint.
func planted(f Fault, n uint64) bool {
	return plantedFault == f && n%faultEvery == faultEvery-1
}

// doubled says whether an acquire of the keys looked up is let through although somebody holds them: DoubleGrant, where
// nobody waits. It is asked once, when the acquire comes: one whose grant was not made queues like any other.
func (t *Table) doubled(keys []named) bool {
	if len(keys) != 1 || keys[0].key == nil {
		return false
	}
	k := keys[0].key
	return k.holder != nil && k.holder.single() && k.reserved == nil && k.head == nil && planted(DoubleGrant, t.order)
}

// ousted makes room on a held key for a second holder: DoubleGrant, the same on every node, since none has it without such
// an ask. To its owner the first grant still holds. It is left to whatever of the stint still names it, on a key of its own
// that no index has and that is never idle: so its end finds nothing to end.
func (t *Table) ousted(k *key, rest KeySet) bool {
	g := k.holder
	if !planted(DoubleGrant, faultEvery-1) || len(rest) > 0 || !g.single() {
		return false
	}
	g.key = &key{name: bytes.Clone(k.name), holder: &grant{}}
	k.holder = nil
	t.rep.grants--
	t.held--
	return true
}

// answeredEarly are the waiters whose grants were answered when they were proposed: nothing else is said to them. Only
// with AnswerBeforeCommit is it looked at, and only in a process with one table that works at a time.
var answeredEarly = map[*waiter]bool{}

// answerEarly answers the grants of f, which was proposed last, with the tokens that they will have if all goes well.
func (t *Table) answerEarly(f *flight) {
	next := t.rep.next
	for _, before := range t.pending[:len(t.pending)-1] {
		next += Token(len(before.waiters))
	}
	for i, w := range f.waiters {
		t.reply(w, Granted, next+Token(i))
		answeredEarly[w] = true
	}
}

func (t *Table) answered(w *waiter) bool {
	return plantedFault == AnswerBeforeCommit && answeredEarly[w]
}

func (t *Table) unanswer(w *waiter) {
	if plantedFault == AnswerBeforeCommit {
		delete(answeredEarly, w)
	}
}
