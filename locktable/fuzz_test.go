package locktable_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

// FuzzTable reads its input as commands, in single mode or (odd first byte) with records that commit late or are refused.
// Nothing may panic, every invariant holds after every command, and a follower that applies the log has the same bytes.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7})
	f.Add([]byte{1, 10, 200, 30, 0, 60, 7, 90, 4, 11, 6, 13, 6, 15, 7, 7, 7, 1, 1, 1, 5, 5, 5})
	f.Add(bytes.Repeat([]byte{1, 0, 17, 34, 5, 6, 91, 2, 7, 3, 3, 3}, 20))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 || len(in) > 2000 {
			return
		}
		g := newFuzzed(t, in[0]&1 == 1, in[1:])
		for len(g.in) > 0 {
			g.command()
			g.propose()
			if err := g.table.Check(); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := g.follower.Snapshot(nil), g.table.Snapshot(nil); !bytes.Equal(got, want) {
			t.Fatalf("the follower has\n%x\nwant\n%x", got, want)
		}
	})
}

type fuzzed struct {
	t               *testing.T
	in              []byte
	late            bool
	now             time.Duration
	stint           uint64
	table, follower *locktable.Table
	out             []proposal
	generations     [3]int
	finished        [3]bool
}

func newFuzzed(t *testing.T, late bool, in []byte) *fuzzed {
	limits := locktable.Limits{MaxKeys: 5, MaxWaiters: 3, MaxTotalWaiters: 6, MaxRecords: 3, MaxEntries: 2}
	g := &fuzzed{t: t, in: in, late: late, table: locktable.New(limits, 1, sinkFunc(quiet)),
		follower: locktable.New(limits, 1, sinkFunc(quiet))}
	g.begin()
	return g
}

func (g *fuzzed) begin() {
	g.stint++
	g.out = nil
	r := g.table.Begin(g.now, locktable.Proposer{Stint: g.stint}, locktable.StartTerms{})
	g.commit(proposal{by: r.By, bytes: locktable.AppendRecord(nil, r)})
}

func (g *fuzzed) commit(p proposal) {
	commit(g.t, g.follower, p.bytes)
	var r locktable.Record
	if err := locktable.DecodeRecord(p.bytes, &r); err != nil {
		g.t.Fatal(err)
	}
	g.table.Commit(g.now, &r)
}

func (g *fuzzed) byte() int {
	if len(g.in) == 0 {
		return 0
	}
	b := g.in[0]
	g.in = g.in[1:]
	return int(b)
}

func (g *fuzzed) propose() {
	for r := g.table.Propose(g.now); r != nil; r = g.table.Propose(g.now) {
		p := proposal{by: r.By, seq: r.Seq, bytes: locktable.AppendRecord(nil, r)}
		if g.late {
			g.out = append(g.out, p)
		} else {
			g.commit(p)
		}
	}
}

func (g *fuzzed) keys() locktable.KeySet {
	var keys []string
	for i, bits := 0, g.byte(); i < 6; i++ {
		if bits>>i&1 == 1 {
			keys = append(keys, string(rune('a'+i)))
		}
	}
	if keys == nil {
		keys = []string{"z"}
	}
	return keySet(keys...)
}

// session is the present user of a slot; one that has finished ends before its slot is used again.
func (g *fuzzed) session() locktable.Session {
	slot := g.byte() % 3
	if g.finished[slot] {
		g.leave(slot, false)
	}
	return session(0, slot, 1+g.generations[slot])
}

func (g *fuzzed) leave(slot int, answer bool) {
	g.table.Leave(g.now, session(0, slot, 1+g.generations[slot]), answer)
	if g.finished[slot] = answer; !answer {
		g.generations[slot]++
	}
}

func (g *fuzzed) command() {
	s := g.session()
	switch g.byte() % 8 {
	case 0, 1:
		a := &locktable.Acquire{Session: s, Keys: g.keys(), ID: uint64(g.byte() % 4), Lease: time.Duration(1+g.byte()) * 10 * time.Millisecond}
		a.Wait = []time.Duration{0, time.Second, locktable.Forever, time.Duration(1 + g.byte())}[g.byte()%4]
		if a.Keys.Single() && a.ID != 0 {
			a.Flags = locktable.Flags(g.byte() & 15)
		}
		g.table.Acquire(g.now, a)
	case 2:
		token := g.table.NextToken() - locktable.Token(g.byte()%8)
		g.table.Release(g.now, &locktable.Release{Session: s, Token: token, Keys: g.keys()})
	case 3:
		keys := g.keys()
		if keys.Single() {
			g.table.Release(g.now, &locktable.Release{Session: s, Keys: keys, Flags: locktable.ByKey})
		}
	case 4:
		g.leave(int(s>>32)&3, g.byte()&1 == 1)
	case 5:
		g.table.Undelivered(g.now, s, g.keys().First(), g.table.NextToken()-locktable.Token(g.byte()%4))
	case 6:
		g.now += time.Duration(g.byte()*g.byte()) * time.Millisecond
		g.table.Tick(g.now)
	case 7:
		g.raft(g.byte())
	}
}

// raft resolves records, in the order of the log: one that was passed by can only be refused.
func (g *fuzzed) raft(b int) {
	switch {
	case !g.late:
	case b%31 == 0:
		g.table.Lose(g.now)
		g.begin()
	case len(g.out) == 0:
	case b%3 == 0:
		i := b / 3 % len(g.out)
		g.table.Refuse(g.now, g.out[i].by, g.out[i].seq)
		g.out = append(g.out[:i:i], g.out[i+1:]...)
	default:
		i := b / 16 % len(g.out)
		if b%2 == 0 {
			i = 0
		}
		p := g.out[i]
		g.out = g.out[i+1:]
		g.commit(p)
	}
}

// FuzzDecodeRecord: no panic; what is read is written and read again alike; and a table takes it.
func FuzzDecodeRecord(f *testing.F) {
	for _, r := range golden() {
		f.Add(locktable.AppendRecord(nil, r))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var r, again locktable.Record
		if locktable.DecodeRecord(in, &r) != nil {
			return
		}
		b := locktable.AppendRecord(nil, &r)
		if err := locktable.DecodeRecord(b, &again); err != nil || !sameRecord(&r, &again) {
			t.Fatalf("%x is read as\n%+v\nwritten as %x and read as\n%+v (%v)", in, r, b, again, err)
		}
		table := locktable.New(roomy, 1, sinkFunc(quiet))
		table.Commit(0, golden()["start"])
		for range 2 {
			table.Commit(0, &r)
			if err := table.Check(); err != nil {
				t.Fatal(err)
			}
		}
		if err := locktable.New(roomy, 1, sinkFunc(quiet)).Restore(0, table.Snapshot(nil)); err != nil {
			t.Fatalf("the snapshot of what a record made cannot be restored: %v\n%+v", err, r)
		}
	})
}

// FuzzRestore: an error leaves the table as it was; else it has exactly that state, and goes on from it.
func FuzzRestore(f *testing.F) {
	table := locktable.New(roomy, 1, sinkFunc(quiet))
	f.Add(table.Snapshot(nil))
	for _, name := range []string{"start", "grant", "hand_over"} {
		table.Commit(0, golden()[name])
		f.Add(table.Snapshot(nil))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		table := locktable.New(roomy, 1, sinkFunc(quiet))
		table.Commit(0, golden()["start"])
		table.Commit(0, golden()["grant"])
		before := table.Snapshot(nil)
		err := table.Restore(0, in)
		if e := table.Check(); e != nil {
			t.Fatal(e)
		}
		after := table.Snapshot(nil)
		if err != nil {
			if !bytes.Equal(before, after) {
				t.Fatalf("refused, and changed:\n%x\nwas\n%x", after, before)
			}
			return
		}
		other := locktable.New(roomy, 1, sinkFunc(quiet))
		if err := other.Restore(0, after); err != nil || !bytes.Equal(other.Snapshot(nil), after) {
			t.Fatalf("%x is restored as\n%x, that as\n%x (%v)", in, after, other.Snapshot(nil), err)
		}
		by := locktable.Proposer{Stint: 99}
		table.Commit(0, table.Begin(0, by, locktable.StartTerms{}))
		table.Tick(time.Hour)
		settle(real{Table: table, direct: true}, time.Hour)
		if e := table.Check(); e != nil {
			t.Fatal(e)
		}
	})
}
