package ring

import (
	"runtime"
	"testing"
	"time"
)

func TestSlotsComeOutInTheOrderTheyWentIn(t *testing.T) {
	r := New[int](4)
	for round := range 10 {
		for i := range 4 {
			s := r.Slot()
			if s == nil {
				t.Fatalf("round %d: no slot %d of 4", round, i)
			}
			*s = round*4 + i
		}
		if r.Slot() != nil {
			t.Fatalf("round %d: a fifth slot of 4", round)
		}
		if r.Next() != nil {
			t.Fatalf("round %d: a slot is visible before it is published", round)
		}
		if !r.Publish() || r.Publish() {
			t.Fatalf("round %d: Publish does not tell new slots from none", round)
		}
		if got := r.Len(); got != 4 {
			t.Fatalf("round %d: Len is %d, want 4", round, got)
		}
		for i := range 4 {
			s := r.Next()
			if s == nil || *s != round*4+i {
				t.Fatalf("round %d: got %v, want %d", round, s, round*4+i)
			}
		}
		if r.Next() != nil {
			t.Fatalf("round %d: a fifth value of 4", round)
		}
		if r.Slot() != nil {
			t.Fatalf("round %d: a slot is free before it is released", round)
		}
		r.Release()
	}
}

func TestCapacityMustBeAPowerOfTwo(t *testing.T) {
	for _, n := range []int{-1, 0, 3, 6, 100} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New(%d) did not panic", n)
				}
			}()
			New[int](n)
		}()
	}
}

// Two goroutines, a small ring, sleepers on both sides: every value arrives once and in order, and nobody sleeps for ever.
func TestNoWakeUpIsLost(t *testing.T) {
	const values = 300_000
	r := New[int](8)
	filled, emptied := NewBell(), NewBell()
	go func() { // ends when it has sent all values
		for i := range values {
			s := r.Slot()
			for s == nil {
				r.Publish()
				filled.Ring()
				emptied.Arm()
				s = r.Slot()
				if s == nil {
					<-emptied.C()
				}
				emptied.Disarm(s == nil)
				if s == nil {
					s = r.Slot()
				}
			}
			*s = i
			if i%3 == 0 || i == values-1 {
				r.Publish()
				filled.Ring()
			}
		}
	}()
	deadline := time.After(30 * time.Second)
	for want := 0; want < values; {
		s := r.Next()
		if s == nil {
			filled.Arm()
			if s = r.Next(); s == nil {
				select {
				case <-filled.C():
				case <-deadline:
					t.Fatalf("asleep with %d of %d values", want, values)
				}
			}
			filled.Disarm(s == nil)
			if s == nil {
				continue
			}
		}
		if *s != want {
			t.Fatalf("got %d, want %d", *s, want)
		}
		want++
		if want%5 == 0 || r.Len() == 8 {
			r.Release()
			emptied.Ring()
		}
		if want%97 == 0 {
			runtime.Gosched()
		}
	}
}

func TestARingNobodyWaitsForIsNotKept(t *testing.T) {
	b := NewBell()
	b.Ring()
	select {
	case <-b.C():
		t.Fatal("a ring before Arm was kept")
	default:
	}
	b.Arm()
	b.Ring()
	b.Ring()
	b.Disarm(false)
	b.Arm()
	select {
	case <-b.C():
		t.Fatal("a ring before Disarm woke the next sleep")
	default:
	}
}

func BenchmarkPublish64(b *testing.B) {
	r := New[[20]uint64](1024)
	b.ReportAllocs()
	for b.Loop() {
		for range 64 {
			r.Slot()[0]++
		}
		r.Publish()
		for r.Next() != nil {
		}
		r.Release()
	}
}
