package main

import (
	"context"
	"errors"
	"testing"

	"github.com/ticketing-go/ticketing/bench/daemon"
)

// A short churn leaves nothing behind; scripts/soak runs the long one.
func TestChurn(t *testing.T) {
	o, err := test(context.Background(), "", plan{cycles: 4000, keys: 20000, warm: 2000, workers: 8})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.verdict(); err != nil {
		t.Errorf("%v:\nstart %v\nend   %v", err, o.start, o.end)
	}
}

func TestVerdict(t *testing.T) {
	start := daemon.Usage{Goroutines: 10, FDs: 20, Keys: 0, HeapBytes: 1 << 20}
	if err := (outcome{start: start, end: start}).verdict(); err != nil {
		t.Errorf("nothing changed: %v", err)
	}
	for _, grow := range []func(*daemon.Usage){
		func(u *daemon.Usage) { u.Goroutines++ },
		func(u *daemon.Usage) { u.FDs++ },
		func(u *daemon.Usage) { u.Keys++ },
		func(u *daemon.Usage) { u.HeapBytes += heapSlack + 1 },
	} {
		end := start
		grow(&end)
		if err := (outcome{start: start, end: end}).verdict(); !errors.Is(err, errLeft) {
			t.Errorf("%v after %v: %v, want %v", end, start, err, errLeft)
		}
	}
}
