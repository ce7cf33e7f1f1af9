package raftglue

import (
	"fmt"
	"testing"
)

// TestNextChange states, for three members, which change is due. A line names the seats in the table and who asks to be
// taken in: v voter, l learner; + lives, - does not answer, x gone; c caught up, s lags behind the latest change.
func TestNextChange(t *testing.T) {
	inc := func(s string) (i Incarnation) { copy(i[:], s); return i }
	at := func(slot int, life string) member {
		return member{slot, fmt.Sprintf("c%d:1", slot), fmt.Sprintf("p%d:1", slot), inc(life)}
	}
	st := func(slot int, life, how string) seat {
		s := seat{member: at(slot, life), live: true, applied: 10}
		for _, c := range how {
			switch c {
			case 'v':
				s.voter = true
			case '-':
				s.live = false
			case 'x':
				s.live, s.gone = false, true
			case 'c':
				s.caughtUp = true
			case 's':
				s.applied = 9
			}
		}
		return s
	}
	ask := func(m member) []wanted { return []wanted{{m, false}} }
	a, b := st(0, "a", "v"), st(1, "b", "v")
	self := a.id()
	for _, c := range []struct {
		name    string
		seats   []seat
		joiners []wanted
		want    changeKind
		who     string
	}{
		{"nothing to do", []seat{a, b, st(2, "c", "v")}, nil, noChange, ""},
		{"a new life asks for a dead one's slot", []seat{a, b, st(2, "c", "vx")}, ask(at(2, "d")), addLearner, "d"},
		{"the old one may yet live", []seat{a, b, st(2, "c", "v-")}, ask(at(2, "d")), noChange, ""},
		{"a learner behind", []seat{a, b, st(2, "c", "vx"), st(2, "d", "l")}, ask(at(2, "d")), noChange, ""},
		{"a learner caught up", []seat{a, b, st(2, "c", "vx"), st(2, "d", "lc")}, ask(at(2, "d")), removeMember, "c"},
		{"the slot is free", []seat{a, b, st(2, "d", "lc")}, ask(at(2, "d")), promote, "d"},
		{"it is silent now", []seat{a, b, st(2, "d", "lc-")}, ask(at(2, "d")), noChange, ""},
		{"a voter has not applied the last change", []seat{a, st(1, "b", "vs"), st(2, "d", "lc")}, ask(at(2, "d")), noChange, ""},
		{"the learner has died, and its next life asks", []seat{a, b, st(2, "d", "x")}, ask(at(2, "e")), removeMember, "d"},
		{"the learner is silent, and its next life asks", []seat{a, b, st(2, "d", "-")}, ask(at(2, "e")), removeMember, "d"},
		{"a learner gone, nobody asks", []seat{a, b, st(2, "d", "x")}, nil, removeMember, "d"},
		{"a learner lives, and has not asked this leader yet", []seat{a, b, st(2, "d", "")}, nil, noChange, ""},
		{"only the leader lives", []seat{a, st(1, "b", "vx"), st(2, "c", "vx")}, ask(at(2, "d")), noChange, ""},
		{"replacing one that lives", []seat{a, b, st(2, "c", "v"), st(2, "d", "lc")}, []wanted{{at(2, "d"), true}}, removeMember, "c"},
		{"not without being told", []seat{a, b, st(2, "c", "v"), st(2, "d", "lc")}, ask(at(2, "d")), noChange, ""},
		{"replacing the last but one", []seat{a, b, st(2, "c", "vx"), st(1, "d", "lc")}, []wanted{{at(1, "d"), true}}, noChange, ""},
		{"the leader does not remove itself", []seat{a, b, st(2, "c", "v"), st(0, "d", "lc")}, []wanted{{at(0, "d"), true}}, noChange, ""},
	} {
		v := &view{size: 3, self: self, index: 10, seats: c.seats, joiners: c.joiners}
		got := nextChange(v)
		who := ""
		for _, s := range append(c.seats, seat{}) {
			if got.kind != noChange && s.id() == got.id {
				who = string(s.Inc[:1])
			}
		}
		if got.kind == addLearner {
			who = c.who
			if got.id != c.joiners[0].id() || got.address != c.joiners[0].address() {
				t.Errorf("%s: adds %s at %s", c.name, got.id, got.address)
			}
		}
		if got.kind != c.want || who != c.who {
			t.Errorf("%s: got %v %q, want %v %q", c.name, got.kind, who, c.want, c.who)
		}
	}
}
