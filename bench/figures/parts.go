package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/ticketing-go/ticketing/bench/daemon"
	"github.com/ticketing-go/ticketing/bench/load"
)

const (
	keyBytes   = 24
	voidTries  = 3 // a void run is run again so often
	hotKeys    = 4 // 16384 waiters a key at most, so 58,000 need four
	lightCount = 64
)

var errVoid = errors.New("every try was void")

// loadRun is one load that a server can be put under.
type loadRun interface {
	Run(load.Target) (load.Result, error)
}

func target(p *daemon.Process) load.Target {
	return load.Target{Addr: p.Addr, Token: []byte(p.Token), PID: p.PID}
}

// attempt puts a load on a server and repeats it while it is void.
func (c *command) attempt(p *daemon.Process, side string, l loadRun, r *report) (load.Result, error) {
	for range voidTries {
		result, err := l.Run(target(p))
		if err != nil {
			return result, fmt.Errorf("%s: %w\n%s", side, err, p.Log())
		}
		fmt.Fprintf(os.Stderr, "%-8s %v\n", side, result)
		if !result.Void {
			return result, nil
		}
		r.voids++
	}
	return load.Result{}, fmt.Errorf("%s: %w", side, errVoid)
}

// pair runs a load on both sides, the first one first in even runs.
func (c *command) pair(sides [2]*daemon.Process, names [2]string, l loadRun, i int, r *report) (results [2]load.Result, err error) {
	for _, side := range [2]int{i % 2, 1 - i%2} {
		if results[side], err = c.attempt(sides[side], names[side], l, r); err != nil {
			return results, err
		}
	}
	return results, nil
}

func (c *command) ownKeys(conns, depth int) load.OwnKeys {
	return load.OwnKeys{Conns: conns, Depth: depth, KeyBytes: keyBytes, Warm: c.scale.warm, Measure: c.scale.measure}
}

func (c *command) hotKey() load.HotKey {
	return load.HotKey{Waiters: lightCount, KeyBytes: keyBytes, Warm: c.scale.warm, Measure: c.scale.measure}
}

func (c *command) product(env ...string) (*daemon.Process, error) {
	return daemon.StartProduct(daemon.Options{Bin: c.server, Env: env, Token: token})
}

// reference starts what the product is compared with.
func (c *command) reference() (*daemon.Process, string, error) {
	if c.old != "" {
		p, err := daemon.StartProduct(daemon.Options{Bin: c.old, Token: token})
		return p, "old", err
	}
	p, err := daemon.StartCeiling(daemon.Options{
		Bin: c.ceiling, Args: []string{"-read-buffer", strconv.Itoa(c.readBuffer)}, Token: token,
	})
	return p, "ceiling", err
}

// stopping ends a server and keeps the first error.
func stopping(p *daemon.Process, err *error) {
	if e := p.Stop(); e != nil && *err == nil {
		*err = fmt.Errorf("%w\n%s", e, p.Log())
	}
}

// loads measures rates, CPU and latencies of both sides.
func (c *command) loads(r *report, i int) (err error) {
	reference, name, err := c.reference()
	if err != nil {
		return err
	}
	defer stopping(reference, &err)
	product, err := c.product()
	if err != nil {
		return err
	}
	defer stopping(product, &err)
	sides, names := [2]*daemon.Process{reference, product}, [2]string{name, "product"}

	at16, err := c.pair(sides, names, c.ownKeys(64, 16), i, r)
	if err != nil {
		return err
	}
	r.add(rate16, at16[1].RepliesPerSecond, at16[0].RepliesPerSecond)
	r.add(cpu16, at16[1].ServerCPUPerOp, at16[0].ServerCPUPerOp)
	at48, err := c.pair(sides, names, c.ownKeys(64, 48), i, r)
	if err != nil {
		return err
	}
	r.add(rate48, at48[1].RepliesPerSecond, at48[0].RepliesPerSecond)
	single, err := c.pair(sides, names, c.ownKeys(1, 1), i, r)
	if err != nil {
		return err
	}
	r.add(acquire1, single[1].AcquireP50, single[0].AcquireP50)
	if c.old != "" {
		hot, err := c.pair(sides, names, c.hotKey(), i, r)
		if err != nil {
			return err
		}
		r.add(handOver, hot[1].HandOverP50, hot[0].HandOverP50)
		return nil
	}
	hot, err := c.attempt(product, names[1], c.hotKey(), r) // the ceiling has no queue to hand over to
	if err != nil {
		return err
	}
	r.add(handOver, hot.HandOverP50, single[0].RoundTripP50)
	return nil
}

// ballast compares the CPU of an operation on a full server with that on one where little is present.
func (c *command) ballast(r *report, i int) (err error) {
	env := []string{"MAX_TOTAL_WAITERS=65536", "MAX_WAITERS=16384", "MAX_KEYS=2000000"}
	var sides [2]*daemon.Process
	for side, b := range [2]load.Ballast{
		{Keys: lightCount, Waiters: lightCount, HotKeys: 1, Conns: 4, KeyBytes: keyBytes},
		{Keys: c.scale.ballastKeys, Waiters: c.scale.ballastWaiters, HotKeys: hotKeys, Conns: 64, KeyBytes: keyBytes},
	} {
		if sides[side], err = c.product(env...); err != nil {
			return err
		}
		defer stopping(sides[side], &err)
		present, err := b.Hold(target(sides[side]))
		if err != nil {
			return err
		}
		defer present.Close()
	}
	results, err := c.pair(sides, [2]string{"light", "ballast"}, c.ownKeys(64, 16), i, r)
	if err != nil {
		return err
	}
	r.add(ballastCPU, results[1].ServerCPUPerOp, results[0].ServerCPUPerOp)
	for side, b := range [2]int{lightCount, c.scale.ballastWaiters} {
		if err := c.stillPresent(sides[side], b); err != nil {
			return err
		}
	}
	return nil
}

// memory measures what a waiter and an idle connection cost.
func (c *command) memory(r *report, _ int) (err error) {
	p, err := c.product("MAX_TOTAL_WAITERS=65536", "MAX_WAITERS=16384", "MAX_CONNECTIONS=8192")
	if err != nil {
		return err
	}
	defer stopping(p, &err)
	// Hardly anything has been scraped yet: garbage of that would leave pages for the connections to use.
	before, err := p.RSS()
	if err != nil {
		return err
	}
	idle, err := load.Connect(target(p), c.scale.idle)
	if err != nil {
		return err
	}
	after, err := p.RSS()
	idle.Close()
	if err != nil {
		return err
	}
	r.add(perConnection, float64(after-before)/float64(c.scale.idle), 0)
	return c.waiterMemory(r)
}

func (c *command) waiterMemory(r *report) (err error) {
	p, err := c.product("MAX_TOTAL_WAITERS=65536", "MAX_WAITERS=16384")
	if err != nil {
		return err
	}
	defer stopping(p, &err)
	few, err := load.Ballast{Waiters: lightCount, HotKeys: hotKeys, Conns: 64, KeyBytes: keyBytes}.Hold(target(p))
	if err != nil {
		return err
	}
	defer few.Close()
	before, err := p.HeapFloor(c.scale.heapWait)
	if err != nil {
		return err
	}
	waiters := c.scale.ballastWaiters - lightCount
	many, err := load.Ballast{Waiters: waiters, HotKeys: hotKeys, Conns: 64, KeyBytes: keyBytes}.Hold(target(p))
	if err != nil {
		return err
	}
	defer many.Close()
	after, err := p.HeapFloor(c.scale.heapWait)
	if err != nil {
		return err
	}
	r.add(perWaiter, float64(after-before)/float64(waiters), 0)
	return c.stillPresent(p, c.scale.ballastWaiters)
}

// stillPresent checks that the waiters that a measurement was about were there to its end.
func (c *command) stillPresent(p *daemon.Process, waiters int) error {
	m, err := p.Metrics()
	if err != nil {
		return err
	}
	got, err := m.Get(daemon.MetricWaiters)
	if err == nil && int(got) != waiters {
		err = fmt.Errorf("%d waiters are present, want %d", int(got), waiters)
	}
	return err
}
