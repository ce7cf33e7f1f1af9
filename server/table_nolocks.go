//go:build nolocks

package server

import (
	"errors"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

// lockTable grants everything and confirms every release, each as an entry of a record that must commit first. It has no
// keys, queues or deadlines: what a table costs above it is lock logic. It must never serve anybody.
type lockTable struct {
	limits            locktable.Limits
	sink              locktable.Sink
	me                locktable.Proposer
	leading, starting bool
	next              locktable.Token
	seq               uint64
	batch, pending    []*flatRecord
	spare             []*flatRecord
	counts            locktable.Counts
}

type flatRecord struct {
	record locktable.Record
	asked  []locktable.Reply
	keys   []byte // what the entries' and asks' keys lie in
}

func newTable(limits locktable.Limits, first locktable.Token, sink locktable.Sink) *lockTable {
	return &lockTable{limits: limits, sink: sink, next: first}
}

func (t *lockTable) Leading() bool              { return t.leading }
func (t *lockTable) NextToken() locktable.Token { return t.next }
func (t *lockTable) Counts() locktable.Counts   { return t.counts }
func (t *lockTable) Waits() locktable.Histogram { return locktable.Histogram{} }
func (t *lockTable) Holds() locktable.Histogram { return locktable.Histogram{} }
func (t *lockTable) IdleKeys() int              { return 0 }
func (t *lockTable) Tick(time.Duration)         {}
func (t *lockTable) Stop(time.Duration)         {}
func (t *lockTable) Snapshot(dst []byte) []byte { return dst }
func (t *lockTable) Undecided() (int, int) {
	return t.counts.UndecidedAcquires, t.counts.UndecidedReleases
}
func (t *lockTable) Deadline() (time.Duration, bool)       { return 0, false }
func (t *lockTable) GraceLeft(time.Duration) time.Duration { return 0 }

func (t *lockTable) Undelivered(time.Duration, locktable.Session, []byte, locktable.Token) {}

func (t *lockTable) Restore(time.Duration, []byte) error {
	return errors.New("server: the reference without locks has no snapshots")
}

func (t *lockTable) Leave(_ time.Duration, s locktable.Session, answer bool) {
	if answer {
		t.sink.Reply(&locktable.Reply{Session: s, Kind: locktable.Left})
	}
}

func (t *lockTable) Begin(_ time.Duration, by locktable.Proposer, terms locktable.StartTerms) *locktable.Record {
	t.me, t.starting, t.leading = by, true, false
	return &locktable.Record{By: by, Entries: []locktable.Entry{{Kind: locktable.Start}}, Start: terms}
}

func (t *lockTable) Lose(time.Duration) {
	t.leading, t.starting, t.batch, t.pending = false, false, nil, nil
}

func (t *lockTable) Refuse(_ time.Duration, by locktable.Proposer, _ uint64) {
	if by == t.me {
		t.Lose(0)
	}
}

func (t *lockTable) open() *flatRecord {
	if n := len(t.batch); n > 0 && len(t.batch[n-1].asked) < t.limits.MaxEntries {
		return t.batch[n-1]
	}
	f := &flatRecord{}
	if n := len(t.spare) - 1; n >= 0 {
		f, t.spare = t.spare[n], t.spare[:n]
		f.record = locktable.Record{Entries: f.record.Entries[:0], Asks: f.record.Asks[:0]}
		f.asked, f.keys = f.asked[:0], f.keys[:0]
	}
	t.batch = append(t.batch, f)
	return f
}

func (f *flatRecord) keep(k locktable.KeySet) locktable.KeySet {
	at := len(f.keys)
	f.keys = append(f.keys, k...)
	return f.keys[at:len(f.keys):len(f.keys)]
}

func (t *lockTable) Acquire(_ time.Duration, a *locktable.Acquire) {
	f := t.open()
	keys := f.keep(a.Keys)
	f.record.Entries = append(f.record.Entries, locktable.Entry{Kind: locktable.Step, Asks: 1})
	f.record.Asks = append(f.record.Asks, locktable.Ask{Keys: keys, Lease: a.Lease})
	f.asked = append(f.asked, locktable.Reply{Session: a.Session, Kind: locktable.Granted, Flags: a.Flags, ID: a.ID, Key: keys.First()})
	t.counts.UndecidedAcquires++
}

func (t *lockTable) TurnAway(_ time.Duration, a *locktable.Acquire) {
	t.sink.Reply(&locktable.Reply{Session: a.Session, Kind: locktable.Busy, Flags: a.Flags, ID: a.ID, Key: a.Keys.First()})
}

func (t *lockTable) Release(_ time.Duration, r *locktable.Release) {
	f := t.open()
	keys := f.keep(r.Keys)
	f.record.Entries = append(f.record.Entries, locktable.Entry{Kind: locktable.Step, End: max(r.Token, 1), Keys: keys})
	f.asked = append(f.asked, locktable.Reply{Session: r.Session, Kind: locktable.Released, Flags: r.Flags, ID: r.ID, Token: r.Token, Key: keys.First()})
	t.counts.UndecidedReleases++
}

func (t *lockTable) Propose(time.Duration) *locktable.Record {
	if !t.leading || len(t.batch) == 0 || len(t.pending) >= t.limits.MaxRecords {
		return nil
	}
	f := t.batch[0]
	t.batch = append(t.batch[:0], t.batch[1:]...)
	t.seq++
	f.record.By, f.record.Seq = t.me, t.seq
	t.pending = append(t.pending, f)
	return &f.record
}

func (t *lockTable) Commit(_ time.Duration, r *locktable.Record) {
	switch {
	case r.By != t.me:
		t.Lose(0)
	case r.Seq == 0:
		t.leading, t.starting = true, false
	case len(t.pending) > 0 && t.pending[0].record.Seq == r.Seq:
		f := t.pending[0]
		t.pending = append(t.pending[:0], t.pending[1:]...)
		for i := range f.asked {
			if a := &f.asked[i]; a.Kind == locktable.Granted {
				a.Token, t.next = t.next, t.next+1
				t.counts.UndecidedAcquires--
				t.counts.Grants++
			} else {
				t.counts.UndecidedReleases--
				t.counts.Releases++
			}
			t.sink.Reply(&f.asked[i])
		}
		t.spare = append(t.spare, f)
	}
}
