package locktable_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

var roomy = locktable.Limits{MaxKeys: 100_000, MaxWaiters: 1000, MaxTotalWaiters: 10_000, MaxRecords: 8, MaxEntries: 256}

func quiet(*locktable.Reply) {}

// logOf plays a random history in a cluster of one and returns its log, and the state at its end.
func logOf(seed uint64) (log [][]byte, end []byte) {
	m := newMix(seed, true)
	for i := range 150 {
		line := "n1 begins"
		switch {
		case i == 0:
			line = "cluster n1"
		case i > 1 && m.IntN(2) == 0:
			line = m.raftLine()
		case i > 1:
			line = m.line()
		}
		if err := m.d.say(line); err != nil {
			panic(fmt.Sprintf("seed %d: %q: %v", seed, line, err))
		}
	}
	for _, p := range m.d.table.log {
		log = append(log, p.bytes)
	}
	return log, m.d.table.nodes[0].table.(real).Snapshot(nil)
}

func commit(t *testing.T, table *locktable.Table, record []byte) {
	var r locktable.Record
	if err := locktable.DecodeRecord(record, &r); err != nil {
		t.Fatalf("DecodeRecord(%x): %v", record, err)
	}
	table.Commit(0, &r)
}

// TestReplay applies one log to several tables, one of them restored in the middle: after each record all have the same
// bytes, and in the end those of the table that wrote the log.
func TestReplay(t *testing.T) {
	seed := seedOf(t)
	for s := seed; s < seed+100; s++ {
		log, end := logOf(s)
		a, b := locktable.New(roomy, 1, sinkFunc(quiet)), locktable.New(roomy, 1, sinkFunc(quiet))
		restored := locktable.New(roomy, 77, sinkFunc(quiet))
		for i, record := range log {
			commit(t, a, record)
			commit(t, b, record)
			if i == len(log)/2 {
				if err := restored.Restore(time.Hour, a.Snapshot(nil)); err != nil {
					t.Fatalf("seed %d: Restore at %d: %v", s, i, err)
				}
			} else if i > len(log)/2 {
				commit(t, restored, record)
			}
			want := a.Snapshot(nil)
			if got := b.Snapshot(nil); !bytes.Equal(got, want) {
				t.Fatalf("seed %d, record %d: got\n%x\nwant\n%x", s, i, got, want)
			}
			if got := restored.Snapshot(nil); i >= len(log)/2 && !bytes.Equal(got, want) {
				t.Fatalf("seed %d, record %d, restored at %d: got\n%x\nwant\n%x", s, i, len(log)/2, got, want)
			}
			for _, table := range []*locktable.Table{a, b, restored} {
				if err := table.Check(); err != nil {
					t.Fatalf("seed %d, record %d: %v", s, i, err)
				}
			}
		}
		if got := a.Snapshot(nil); !bytes.Equal(got, end) {
			t.Fatalf("seed %d: got\n%x\nwant that of the leader\n%x", s, got, end)
		}
	}
}

// TestSingleModeIsTheLog says that committing records as they are, as single mode does, changes what their bytes change.
func TestSingleModeIsTheLog(t *testing.T) {
	seed := seedOf(t)
	for s := seed; s < seed+50; s++ {
		r := rand.New(rand.NewPCG(s, 4))
		alone, follower := locktable.New(roomy, 1, sinkFunc(quiet)), locktable.New(roomy, 1, sinkFunc(quiet))
		both := func(now time.Duration, rec *locktable.Record) {
			commit(t, follower, locktable.AppendRecord(nil, rec))
			alone.Commit(now, rec)
			if got, want := alone.Snapshot(nil), follower.Snapshot(nil); !bytes.Equal(got, want) {
				t.Fatalf("seed %d: got\n%x\nwant\n%x", s, got, want)
			}
		}
		both(0, alone.Begin(0, locktable.Proposer{Stint: 1}, locktable.StartTerms{Addresses: "x"}))
		for i := range 300 {
			now := time.Duration(i) * 20 * time.Millisecond
			chaos(alone, now, r)
			for rec := alone.Propose(now); rec != nil; rec = alone.Propose(now) {
				both(now, rec)
			}
		}
	}
}

// chaos gives a table one random command.
func chaos(t *locktable.Table, now time.Duration, r *rand.Rand) {
	var keys []string
	for _, k := range []string{"a", "b", "c", "d", "e"} {
		if r.IntN(3) == 0 {
			keys = append(keys, k)
		}
	}
	if keys == nil {
		keys = []string{"z"}
	}
	s := session(r.IntN(2), r.IntN(3), 1)
	switch r.IntN(8) {
	case 0:
		t.Tick(now)
	case 1, 2, 3:
		t.Release(now, &locktable.Release{Session: s, Token: t.NextToken() - locktable.Token(r.IntN(6)), Keys: keySet(keys...)})
	default:
		a := &locktable.Acquire{Session: s, ID: uint64(1 + r.IntN(4)), Keys: keySet(keys...),
			Lease: time.Duration(1+r.IntN(3000)) * time.Millisecond, Wait: time.Duration(r.IntN(3)) * time.Second}
		if len(keys) == 1 {
			a.Flags = []locktable.Flags{0, locktable.Idempotent, locktable.ByKey | locktable.InOrder}[r.IntN(3)]
		}
		t.Acquire(now, a)
	}
}

// golden are records of every kind. Their bytes are in testdata/records: a change of the format changes those files, and
// what a cluster of the version before has written must still be read.
func golden() map[string]*locktable.Record {
	by := locktable.Proposer{Incarnation: [16]byte{0: 0xaa, 15: 0xbb}, Stint: 0x0102030405060708}
	return map[string]*locktable.Record{
		"start": {By: by, Entries: []locktable.Entry{{Kind: locktable.Start}}, Start: locktable.StartTerms{FirstToken: 5000,
			Grace: 250 * time.Second, Addresses: "a:1 b:2"}},
		"empty": {By: by, Seq: 1, Advance: 50 * time.Millisecond},
		"grant": {By: by, Seq: 2, Advance: 1, Entries: []locktable.Entry{{Kind: locktable.Step, Asks: 1}},
			Asks: []locktable.Ask{{Keys: keySet("orders"), Lease: 10 * time.Second}}},
		"hand_over": {By: by, Seq: 300, Advance: time.Hour, Entries: []locktable.Entry{{Kind: locktable.Step,
			Why: locktable.ByRelease, End: locktable.LastToken, Keys: keySet("a", "b"), Asks: 3}},
			Asks: []locktable.Ask{{Keys: keySet("a"), Lease: time.Millisecond, Flags: locktable.ByKey},
				{Keys: keySet("b"), Lease: 65535 * time.Second, Flags: locktable.Idempotent, Owner: 1<<64 - 1},
				{Keys: keySet("c", "d", "é"), Lease: 250 * time.Second}}},
		"ends": {By: by, Seq: 4, Entries: []locktable.Entry{
			{Kind: locktable.Step, Why: locktable.ByExpiry, End: 1, Keys: keySet("a")},
			{Kind: locktable.Step, Why: locktable.ByRevoke, End: 2, Keys: keySet("b", "c")}}},
		"reaffirm": {By: by, Seq: 5, Entries: []locktable.Entry{{Kind: locktable.Reaffirm, ID: 7, Keys: keySet("orders")},
			{Kind: locktable.Barrier}}},
	}
}

func TestGoldenRecords(t *testing.T) {
	for name, r := range golden() {
		file := filepath.Join("testdata", "records", name+".hex")
		b := locktable.AppendRecord(nil, r)
		want := goldenBytes(t, file, b)
		if !bytes.Equal(b, want) {
			t.Errorf("%s: AppendRecord got\n%x\nwant\n%x", name, b, want)
		}
		var got locktable.Record
		if err := locktable.DecodeRecord(want, &got); err != nil {
			t.Errorf("%s: DecodeRecord: %v", name, err)
			continue
		}
		if !sameRecord(&got, r) {
			t.Errorf("%s: DecodeRecord got\n%+v\nwant\n%+v", name, got, *r)
		}
	}
}

// TestGoldenSnapshot keeps the bytes of a state with a grant of each kind.
func TestGoldenSnapshot(t *testing.T) {
	table := locktable.New(roomy, 1, sinkFunc(quiet))
	for _, name := range []string{"start", "grant", "hand_over"} {
		table.Commit(0, golden()[name])
	}
	b := table.Snapshot(nil)
	want := goldenBytes(t, filepath.Join("testdata", "records", "snapshot.hex"), b)
	if !bytes.Equal(b, want) {
		t.Errorf("Snapshot got\n%x\nwant\n%x", b, want)
	}
	other := locktable.New(roomy, 1, sinkFunc(quiet))
	if err := other.Restore(0, want); err != nil {
		t.Fatal(err)
	}
	if got := other.Snapshot(nil); !bytes.Equal(got, want) {
		t.Errorf("Snapshot after Restore got\n%x\nwant\n%x", got, want)
	}
	if got := other.Counts().Held; got != 6 {
		t.Errorf("got %d keys held, want 6", got)
	}
}

// goldenBytes reads a file of hex with comments; with -rewrite it is written first.
func goldenBytes(t *testing.T, file string, b []byte) []byte {
	if *rewrite {
		text := "# " + strings.TrimSuffix(filepath.Base(file), ".hex") + ", version 1\n"
		for i := 0; i < len(b); i += 32 {
			text += hex.EncodeToString(b[i:min(i+32, len(b))]) + "\n"
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var digits string
	for _, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "#") {
			digits += strings.TrimSpace(line)
		}
	}
	want, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return want
}

// sameRecord compares what a record says.
func sameRecord(a, b *locktable.Record) bool {
	return reflect.DeepEqual(asReference(a), asReference(b)) && fmt.Sprint(whys(a)) == fmt.Sprint(whys(b))
}

func whys(r *locktable.Record) (w []locktable.EndReason) {
	for _, e := range r.Entries {
		w = append(w, e.Why)
	}
	return w
}

// TestRecordsCutShort wants every prefix of a record or a snapshot refused, and the table as it was.
func TestRecordsCutShort(t *testing.T) {
	for name, r := range golden() {
		b := locktable.AppendRecord(nil, r)
		for n := range b {
			var got locktable.Record
			if err := locktable.DecodeRecord(b[:n:n], &got); !errors.Is(err, locktable.ErrRecord) {
				t.Errorf("%s: the first %d of %d bytes: got %v, want ErrRecord", name, n, len(b), err)
			}
		}
		var got locktable.Record
		if err := locktable.DecodeRecord(append(b, 0), &got); !errors.Is(err, locktable.ErrRecord) {
			t.Errorf("%s: a byte too many: got %v, want ErrRecord", name, err)
		}
	}
	table := locktable.New(roomy, 1, sinkFunc(quiet))
	for _, name := range []string{"start", "grant", "hand_over"} {
		table.Commit(0, golden()[name])
	}
	b := table.Snapshot(nil)
	for n := range b {
		if err := table.Restore(0, b[:n:n]); !errors.Is(err, locktable.ErrRecord) {
			t.Errorf("the first %d of %d bytes of a snapshot: got %v, want ErrRecord", n, len(b), err)
		}
	}
	if got := table.Snapshot(nil); !bytes.Equal(got, b) {
		t.Errorf("after refused snapshots: got\n%x\nwant\n%x", got, b)
	}
}

// TestRestoreWhileLeading keeps the stint when the snapshot is refused.
func TestRestoreWhileLeading(t *testing.T) {
	table := locktable.New(roomy, 1, sinkFunc(quiet))
	table.Commit(0, table.Begin(0, locktable.Proposer{Stint: 1}, locktable.StartTerms{}))
	if err := table.Restore(0, []byte{1, 2, 3}); err == nil || !table.Leading() {
		t.Errorf("got %v, leading %v; want an error, and to lead on", err, table.Leading())
	}
}

// TestApplyStopsAtTheLastToken: whatever a leader asked for, no token beyond the last is issued.
func TestApplyStopsAtTheLastToken(t *testing.T) {
	table := locktable.New(roomy, locktable.LastToken, sinkFunc(quiet))
	by := locktable.Proposer{Stint: 1}
	table.Commit(0, &locktable.Record{By: by, Entries: []locktable.Entry{{Kind: locktable.Start}}})
	for seq, key := range []string{"a", "b", "c"} {
		table.Commit(0, &locktable.Record{By: by, Seq: uint64(seq + 1), Entries: []locktable.Entry{{Kind: locktable.Step, Asks: 1}},
			Asks: []locktable.Ask{{Keys: keySet(key), Lease: time.Second}}})
		if got, next := table.Counts().Held, table.NextToken(); got != 1 || next != locktable.LastToken+1 {
			t.Errorf("after %s: got %d keys held, next token %d, want 1, %d", key, got, next, uint64(locktable.LastToken)+1)
		}
		if err := table.Check(); err != nil {
			t.Error(err)
		}
	}
}
