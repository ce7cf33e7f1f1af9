package load

import (
	"fmt"
	"time"

	"github.com/ticketing-go/ticketing/bench/frames"
)

// hotKey is the state of a run of HotKey.
type hotKey struct {
	*poller
	key      []byte
	released time.Duration // when the latest release was sent; 0: none yet
	measured bool
	draining bool
	waiting  int
	handOver histogram
	result   Result
}

// Run runs the load. A hand-over is the time from the moment before the release is written to the moment after the next
// holder's grant is read. Release and new acquire travel in one write, so that the queue never gets shorter.
func (l HotKey) Run(t Target) (Result, error) {
	if l.Waiters < 1 || l.KeyBytes < MinKeyBytes {
		return Result{}, fmt.Errorf("load: %+v is out of range", l)
	}
	p, err := newPoller(t, l.Waiters+1)
	if err != nil {
		return Result{}, err
	}
	defer p.Close()
	run := &hotKey{poller: p, key: slotKey(uniquePrefix(), 0, 0, l.KeyBytes)}
	run.result = Result{Workload: "hot-key", Conns: l.Waiters + 1, Depth: 1, KeyBytes: l.KeyBytes}
	for _, c := range p.conns {
		run.queue(c)
		if err := c.flush(); err != nil {
			return run.result, err
		}
	}
	if err := run.pollFor(l.Warm); err != nil {
		return run.result, err
	}
	w := window{pid: t.PID}
	run.measured = true
	if err := w.open(); err != nil {
		return run.result, err
	}
	if err := run.pollFor(l.Measure); err != nil {
		return run.result, err
	}
	if err := w.close(); err != nil {
		return run.result, err
	}
	run.measured, run.draining = false, true
	for deadline := p.now() + stallTimeout; run.waiting > 0; {
		if p.now() > deadline {
			return run.result, ErrStalled
		}
		if err := p.poll(100*time.Millisecond, run.take); err != nil {
			return run.result, err
		}
	}
	r := &run.result
	w.fill(r)
	r.HandOverP50, r.HandOverP99, r.HandOvers = run.handOver.quantile(0.5), run.handOver.quantile(0.99), run.handOver.total
	return *r, nil
}

func (run *hotKey) pollFor(d time.Duration) error {
	for deadline := run.now() + d; run.now() < deadline; {
		if err := run.poll(10*time.Millisecond, run.take); err != nil {
			return err
		}
		if run.now()-run.released > stallTimeout {
			return ErrStalled
		}
	}
	return nil
}

func (run *hotKey) queue(c *conn) {
	c.out = frames.AppendAcquire(c.out, waitSeconds, leaseSeconds, uint64(c.index), run.key)
	run.waiting++
}

func (run *hotKey) take(c *conn, r *frames.Reply) error {
	if run.measured {
		run.result.Replies++
	}
	run.result.count(r.Op)
	switch r.Op {
	case frames.Granted:
		if run.measured && run.released > 0 {
			run.handOver.add(run.at - run.released)
		}
		run.waiting--
		c.out = frames.AppendRelease(c.out, r.Token, run.key)
		if !run.draining {
			run.queue(c)
		}
		run.released = run.now()
		return c.flush()
	case frames.Busy, frames.TimedOut:
		run.waiting--
	}
	return nil
}
