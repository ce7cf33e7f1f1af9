package locktable_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

// heard collects what a session is told.
type heard struct{ kinds []locktable.Kind }

func (h *heard) Reply(r *locktable.Reply) { h.kinds = append(h.kinds, r.Kind) }

// newLine is a table whose only key is held, and an in-order acquire that waits for it for ever.
func newLine() (*locktable.Table, *heard, *locktable.Acquire) {
	h := &heard{}
	t := real{Table: locktable.New(large, 1, h), direct: true}
	t.Commit(0, t.Begin(0, locktable.Proposer{Stint: 1}, locktable.StartTerms{}))
	t.Acquire(0, lease(session(0, 0, 1), keySet("k"), 0))
	settle(t, 0)
	h.kinds = nil
	a := lease(session(0, 1, 1), keySet("k"), locktable.Forever)
	a.Flags = locktable.ByKey | locktable.InOrder
	t.Acquire(0, a)
	return t.Table, h, a
}

// An acquire that was refused for load before it came to the table is answered in its place all the same.
func TestTurnedAwayWaitsItsTurn(t *testing.T) {
	table, h, a := newLine()
	table.TurnAway(0, a)
	if len(h.kinds) > 0 {
		t.Fatalf("said %v while the older acquire waits", h.kinds)
	}
	table.Release(0, &locktable.Release{Session: 1, Token: 1, Keys: keySet("k")})
	settle(real{Table: table, direct: true}, 0)
	if want := []locktable.Kind{locktable.Released, locktable.Granted, locktable.Busy}; !slices.Equal(h.kinds, want) {
		t.Errorf("said %v, want %v", h.kinds, want)
	}
}

// Answers that are held back are bounded: beyond that the session is told once that it has Left, and holds no more.
func TestHeldBackAnswersAreBounded(t *testing.T) {
	const most = 4096
	table, h, a := newLine()
	for range most {
		table.TurnAway(0, a)
	}
	if len(h.kinds) > 0 {
		t.Fatalf("said %v after %d answers that are held back", h.kinds, most)
	}
	other := *a
	other.Keys = keySet("free")
	table.Acquire(0, &other)
	settle(real{Table: table, direct: true}, 0)
	if want := []locktable.Kind{locktable.Granted}; !slices.Equal(h.kinds, want) {
		t.Fatalf("said %v on a free key, want %v", h.kinds, want)
	}
	h.kinds = nil
	for range 3 * most {
		table.TurnAway(0, a)
	}
	if want := []locktable.Kind{locktable.Left}; !slices.Equal(h.kinds, want) {
		t.Fatalf("said %v, want %v", h.kinds, want)
	}
	h.kinds = nil
	table.Release(0, &locktable.Release{Session: 1, Token: 1, Keys: keySet("k")})
	settle(real{Table: table, direct: true}, 0)
	if len(h.kinds) > 2+most+1 {
		t.Errorf("%d answers were held, want at most %d", len(h.kinds)-2, most+1)
	}
	// Room is made by what is given.
	table, h, a = newLine()
	for range most {
		table.TurnAway(0, a)
	}
	table.Release(0, &locktable.Release{Session: 1, Token: 1, Keys: keySet("k")})
	settle(real{Table: table, direct: true}, 0)
	a.Wait = time.Hour
	table.Acquire(0, a)
	h.kinds = nil
	for range most {
		table.TurnAway(0, a)
	}
	if len(h.kinds) > 0 {
		t.Errorf("said %v although all that was held back before has been given", h.kinds)
	}
}
