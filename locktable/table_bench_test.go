package locktable_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

// crowd is what is in the table while one operation is measured.
type crowd struct {
	name          string
	keys, waiters int
}

var crowds = []crowd{{"64 waiters", 64, 64}, {"58000 waiters, 1000000 keys", 1_000_000, 58_000}}

func newCrowd(c crowd) *alone {
	a := newAlone(locktable.Limits{MaxKeys: 2_000_000, MaxWaiters: 16384, MaxTotalWaiters: 65536, MaxRecords: 8, MaxEntries: 256})
	var buf []byte
	for i := range c.keys {
		buf = fmt.Appendf(buf[:0], "\x0ccrowd-%06d", i)
		a.take(lease(session(1, i%1000, 1), buf, 0))
	}
	for i := range c.waiters {
		buf = fmt.Appendf(buf[:0], "\x0ccrowd-%06d", i%64)
		a.take(lease(session(1, i%1000, 1), buf, time.Hour))
	}
	if got := a.Counts(); got.Waiters != c.waiters || got.Keys != c.keys {
		panic(fmt.Sprintf("%+v", got))
	}
	return a
}

// names are keys that take turns, so that not one cache line is measured.
func names(n int) []locktable.KeySet {
	var s []locktable.KeySet
	for i := range n {
		s = append(s, keySet(fmt.Sprintf("orders-%05d", i)))
	}
	return s
}

func BenchmarkAcquireRelease(b *testing.B) {
	for _, c := range crowds {
		b.Run(c.name, func(b *testing.B) {
			a, keys := newCrowd(c), names(1024)
			acq, rel := lease(session(0, 0, 1), nil, 0), &locktable.Release{Session: session(0, 0, 1)}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				acq.Keys, rel.Keys = keys[i%1024], keys[i%1024]
				a.take(acq)
				a.give(rel)
			}
		})
	}
}

func BenchmarkAcquireReleaseSet(b *testing.B) {
	a := newCrowd(crowds[0])
	set := keySet("a", "b", "c", "d")
	acq, rel := lease(session(0, 0, 1), set, 0), &locktable.Release{Session: session(0, 0, 1), Keys: set}
	b.ReportAllocs()
	for b.Loop() {
		a.take(acq)
		a.give(rel)
	}
}

// BenchmarkHandOver is one hot key with a waiter that joins and one that is granted.
func BenchmarkHandOver(b *testing.B) {
	for _, c := range crowds {
		b.Run(c.name, func(b *testing.B) {
			a, key := newCrowd(c), keySet("hot")
			s := session(0, 0, 1)
			for range 64 {
				a.take(lease(s, key, time.Hour))
			}
			a.last = a.NextToken() - 1
			acq, rel := lease(s, key, time.Hour), &locktable.Release{Session: s, Keys: key}
			b.ReportAllocs()
			for b.Loop() {
				a.take(acq)
				a.give(rel)
			}
		})
	}
}

func BenchmarkTimeOut(b *testing.B) {
	a := newCrowd(crowds[1])
	key := keySet("hot")
	a.take(lease(session(0, 0, 1), key, 0))
	acq := lease(session(0, 1, 1), key, time.Millisecond)
	now := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		a.Acquire(now, acq)
		now += time.Millisecond
		a.Tick(now)
	}
}

func BenchmarkDecodeRecord(b *testing.B) {
	record := locktable.AppendRecord(nil, golden()["hand_over"])
	var r locktable.Record
	b.ReportAllocs()
	for b.Loop() {
		if err := locktable.DecodeRecord(record, &r); err != nil {
			b.Fatal(err)
		}
	}
}
