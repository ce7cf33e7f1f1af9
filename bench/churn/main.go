// Command churn shows that a daemon keeps nothing of what has gone: it runs cycles of connect, authenticate, acquire and
// disconnect from many loopback addresses, half of them closed by a reset, acquires and releases as many keys, and then
// compares goroutines, descriptors, active keys and heap with the start.
//
//	go run ./bench/churn --cycles 1000000 --keys 1000000
//
// A table that has grown for its busiest moment keeps its room, which is no leak. So a short warm-up at full rate comes
// before the start is measured; the daemon as it was before that is printed too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ticketing-go/ticketing/bench/daemon"
)

// token is the client token of the daemon that this command starts; it guards nothing.
const token = "bench-churn-client-token"

const (
	heapSlack   = 1 << 20          // bytes that the heap may have grown by
	settleLimit = 30 * time.Second // for what is closed or leased to be gone
	gcLimit     = 60 * time.Second // for a collection to happen
)

// plan is how much is done.
type plan struct {
	cycles, keys, warm, workers int
}

// outcome is what the daemon held: as it came, at the start, at the end.
type outcome struct {
	cold, start, end daemon.Usage
}

var errLeft = errors.New("something was left behind")

// verdict is nil if all is back to the start.
func (o outcome) verdict() error {
	s, e := o.start, o.end
	if e.Goroutines > s.Goroutines || e.FDs > s.FDs || e.Keys > s.Keys || e.HeapBytes > s.HeapBytes+heapSlack {
		return errLeft
	}
	return nil
}

func main() {
	var p plan
	server := flag.String("server", "", "ticketingd to test, `BIN`; built from this tree if not given")
	flag.IntVar(&p.cycles, "cycles", 1_000_000, "connections")
	flag.IntVar(&p.keys, "keys", 1_000_000, "keys")
	flag.IntVar(&p.warm, "warm", 20_000, "connections and keys before the start is measured")
	flag.IntVar(&p.workers, "workers", 8, "connections at a time")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	began := time.Now()
	o, err := test(ctx, *server, p)
	fmt.Printf("came:  %v\nstart: %v\nend:   %v\n", o.cold, o.start, o.end)
	if err == nil {
		err = o.verdict()
	}
	if err != nil {
		fmt.Println("FAIL:", err)
		os.Exit(1)
	}
	fmt.Printf("PASS: %d cycles and %d keys in %v; heap %+d bytes\n", p.cycles, p.keys, time.Since(began).Round(time.Second), o.end.HeapBytes-o.start.HeapBytes)
}

// test runs the plan against a daemon of its own.
func test(ctx context.Context, bin string, p plan) (o outcome, err error) {
	if bin == "" {
		dir, err := os.MkdirTemp("", "ticketing-churn-")
		if err != nil {
			return o, err
		}
		defer os.RemoveAll(dir)
		if bin, err = daemon.Build(ctx, daemon.Product, dir); err != nil {
			return o, err
		}
	}
	d, err := daemon.StartProduct(daemon.Options{Bin: bin, Token: token})
	if err != nil {
		return o, err
	}
	defer func() {
		if e := d.Stop(); err == nil && e != nil {
			err = fmt.Errorf("%w\n%s", e, d.Log())
		}
	}()
	if o.cold, err = d.Usage(gcLimit); err != nil {
		return o, err
	}
	if err := churn(ctx, d, p.warm, p.warm, p.workers); err != nil {
		return o, fmt.Errorf("warm-up: %w", err)
	}
	if o.start, err = settled(d, o.cold); err != nil {
		return o, err
	}
	if err := churn(ctx, d, p.cycles, p.keys, p.workers); err != nil {
		return o, err
	}
	o.end, err = settled(d, o.start)
	return o, err
}

// settled waits until goroutines, descriptors and keys are where they were, for settleLimit at most, and reads the usage
// then.
func settled(d *daemon.Process, before daemon.Usage) (daemon.Usage, error) {
	if err := d.AwaitIdle(before, settleLimit); err != nil && !errors.Is(err, daemon.ErrNotIdle) {
		return daemon.Usage{}, err
	}
	return d.Usage(gcLimit)
}
