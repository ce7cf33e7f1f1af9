package locktable_test

import (
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

// TestStormOfLeaders: leaders that live shorter than a second still move the lease clock, so a dead holder's key comes
// free; and never before its lease is over.
func TestStormOfLeaders(t *testing.T) {
	for _, life := range []time.Duration{80 * time.Millisecond, 200 * time.Millisecond, 900 * time.Millisecond, 1500 * time.Millisecond} {
		tables := []*locktable.Table{locktable.New(roomy, 1, sinkFunc(quiet)), locktable.New(roomy, 1, sinkFunc(quiet))}
		now := time.Duration(0)
		commitAll := func(r *locktable.Record) {
			record := locktable.AppendRecord(nil, r)
			for _, table := range tables {
				var r locktable.Record
				if err := locktable.DecodeRecord(record, &r); err != nil {
					t.Fatal(err)
				}
				table.Commit(now, &r)
			}
		}
		granted := false
		for i := 0; i < 300; i++ {
			lead := tables[i%2]
			commitAll(lead.Begin(now, locktable.Proposer{Incarnation: [16]byte{byte(i % 2)}, Stint: uint64(i)}, locktable.StartTerms{}))
			if !granted {
				lead.Acquire(now, &locktable.Acquire{Session: session(0, 0, 1), Keys: keySet("a"), Lease: time.Second})
				granted = true
			}
			for until := now + life; now < until; now += 10 * time.Millisecond {
				lead.Tick(now)
				for r := lead.Propose(now); r != nil; r = lead.Propose(now) {
					commitAll(r)
				}
				if lead.Counts().Held == 0 {
					break
				}
			}
			if lead.Counts().Held == 0 {
				t.Logf("leaders live %v: free after %v, %d leaders", life, now, i+1)
				break
			}
		}
		if tables[0].Counts().Held != 0 {
			t.Errorf("leaders live %v: still held after %v", life, now)
		}
		if now < time.Second {
			t.Errorf("leaders live %v: free after %v, before the lease of 1s was over", life, now)
		}
	}
}
