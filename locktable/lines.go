package locktable

import "bytes"

// Wire 0.1: the client gives an answer to its oldest request for the key, so the answers to one session's acquires of
// one key keep the order of the requests (WIRES.md section 5.2).

// line is the acquires of one session for one key that are not answered yet, oldest first.
type line struct {
	name  []byte // behind its length byte
	items []lineItem
}

// lineItem is an acquire that waits, or an answer that is held back.
type lineItem struct {
	waiter *waiter // nil: answered
	kind   Kind
	flags  Flags
	id     uint64
	token  Token
}

// maxHeldBack is how many answers may be held back for one session. Nobody paces who sends more behind an acquire that
// waits for ever: the session is told that it has Left.
const maxHeldBack = 4096

func (x *session) lineOf(name []byte) *line {
	for _, l := range x.lines {
		if bytes.Equal(l.name, name) {
			return l
		}
	}
	return nil
}

// joinLine puts w behind its session's earlier acquires of its key.
func (t *Table) joinLine(w *waiter) {
	x := t.sessionOf(w.sender.session)
	if x == nil {
		return
	}
	l := x.lineOf(w.first.key.name)
	if l == nil {
		l = &line{name: bytes.Clone(w.first.key.name)}
		x.lines = append(x.lines, l)
	}
	l.items = append(l.items, lineItem{waiter: w})
}

// answerBehindLine holds the answer to an acquire back if an older one of its session and key is unanswered.
func (t *Table) answerBehindLine(a *Acquire, kind Kind) bool {
	x := t.sessionOf(a.Session)
	if x == nil {
		return false
	}
	l := x.lineOf(a.Keys)
	if l == nil {
		return false
	}
	if !x.overrun {
		l.items = append(l.items, lineItem{kind: kind, flags: a.Flags, id: a.ID})
		x.held++
		t.bound(a.Session, x)
	}
	return true
}

// bound gives a session up for which too many answers are held back.
func (t *Table) bound(s Session, x *session) {
	if x.held > maxHeldBack && !x.overrun {
		x.overrun = true
		t.answer(Left, s, 0, 0, 0, nil)
	}
}

// answerInLine answers w, as soon as all older ones are answered.
func (t *Table) answerInLine(w *waiter, s Session, kind Kind, token Token) {
	x := t.sessionOf(s)
	var l *line
	if x != nil {
		l = x.lineOf(w.first.key.name)
	}
	if l == nil {
		t.answer(kind, s, w.flags, w.id, token, w.first.key.name[1:])
		return
	}
	for i := range l.items {
		if l.items[i].waiter == w {
			l.items[i] = lineItem{kind: kind, flags: w.flags, id: w.id, token: token}
			x.held++
			break
		}
	}
	t.moveLine(s, x, l)
	t.bound(s, x)
}

// moveLine answers what no older acquire holds back any more. Behind one that a stop leaves without a word on the wire, a
// no would be taken for the answer to that one: it becomes StopQueued itself.
func (t *Table) moveLine(s Session, x *session, l *line) {
	silent := false
	for len(l.items) > 0 && l.items[0].waiter == nil {
		i := l.items[0]
		l.items = l.items[1:]
		x.held--
		if silent = silent || i.kind == StopQueued; silent && i.kind != Granted {
			i.kind = StopQueued
		}
		t.answer(i.kind, s, i.flags, i.id, i.token, l.name[1:])
	}
	if len(l.items) > 0 {
		return
	}
	for i := range x.lines {
		if x.lines[i] == l {
			last := len(x.lines) - 1
			x.lines[i], x.lines[last] = x.lines[last], nil
			x.lines = x.lines[:last]
			return
		}
	}
}

// dropLines forgets what a session that leaves would have been answered in order; with answer, only its queued waiters
// and what they hold back, which would be taken for their answers.
func (t *Table) dropLines(s Session, x *session, answer bool) {
	if !answer {
		x.lines, x.held = nil, 0
		return
	}
	for i := len(x.lines) - 1; i >= 0; i-- {
		l := x.lines[i]
		rest, silent := l.items[:0], false
		for _, item := range l.items {
			switch {
			case item.waiter == nil && silent && item.kind != Granted:
				x.held--
			case item.waiter == nil || item.waiter.state == reserved:
				rest = append(rest, item)
			default:
				silent = true
			}
		}
		l.items = rest
		t.moveLine(s, x, l)
	}
}
