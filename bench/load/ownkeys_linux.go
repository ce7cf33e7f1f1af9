package load

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ticketing-go/ticketing/bench/frames"
)

// slot is one of the keys of a connection, and the one request in flight for it.
type slot struct {
	key  []byte
	sent time.Duration // to within the handling of one read
}

// ownKeys is the state of a run of OwnKeys.
type ownKeys struct {
	*poller
	depth    int
	slots    []slot // conns × depth
	inFlight int
	measured bool // within the window
	draining bool // nothing is acquired any more
	acquire  histogram
	all      histogram
	result   Result
}

// Run runs the load. Keys are new with every run, and released at its end.
func (l OwnKeys) Run(t Target) (Result, error) {
	if l.Conns < 1 || l.Depth < 1 || l.Depth > MaxDepth || l.KeyBytes < MinKeyBytes {
		return Result{}, fmt.Errorf("load: %+v is out of range", l)
	}
	p, err := newPoller(t, l.Conns)
	if err != nil {
		return Result{}, err
	}
	defer p.Close()
	run := &ownKeys{poller: p, depth: l.Depth, slots: make([]slot, l.Conns*l.Depth)}
	run.result = Result{Workload: "own-keys", Conns: l.Conns, Depth: l.Depth, KeyBytes: l.KeyBytes}
	prefix := uniquePrefix()
	for i := range run.slots {
		run.slots[i].key = slotKey(prefix, i/l.Depth, i%l.Depth, l.KeyBytes)
	}
	if err := run.begin(); err != nil {
		return run.result, err
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
	for deadline := p.now() + stallTimeout; run.inFlight > 0; {
		if p.now() > deadline {
			return run.result, ErrStalled
		}
		if err := p.poll(100*time.Millisecond, run.take); err != nil {
			return run.result, err
		}
	}
	r := &run.result
	w.fill(r)
	r.AcquireP50, r.AcquireP99, r.AcquireMax = run.acquire.quantile(0.5), run.acquire.quantile(0.99), float64(run.acquire.max)/1e3
	r.RoundTripP50 = run.all.quantile(0.5)
	return *r, nil
}

// uniquePrefix tells the keys of one run from those of any other.
func uniquePrefix() string { return fmt.Sprintf("%010x", rand.Uint64()&(1<<40-1)) }

// slotKey is a key of n bytes whose last two name the slot on its connection.
func slotKey(prefix string, conn, index, n int) []byte {
	key := fmt.Appendf(nil, "%s-%06x", prefix, conn)
	for len(key) < n-2 {
		key = append(key, '.')
	}
	return append(key, '0'+byte(index>>6), '0'+byte(index&63))
}

func slotOf(key []byte) int {
	if len(key) < 2 {
		return -1
	}
	return int(key[len(key)-2]-'0')<<6 | int(key[len(key)-1]-'0')
}

func (run *ownKeys) begin() error {
	run.at = run.now()
	for _, c := range run.conns {
		for i := range run.depth {
			run.sendAcquire(c, i)
		}
		if err := c.flush(); err != nil {
			return err
		}
	}
	run.inFlight = len(run.slots)
	return nil
}

func (run *ownKeys) pollFor(d time.Duration) error {
	last, seen := run.now(), run.result.Replies
	for deadline := run.now() + d; run.now() < deadline; {
		if err := run.poll(10*time.Millisecond, run.take); err != nil {
			return err
		}
		if run.result.Replies != seen {
			last, seen = run.now(), run.result.Replies
		} else if run.measured && run.now()-last > stallTimeout {
			return ErrStalled
		}
	}
	return nil
}

func (run *ownKeys) sendAcquire(c *conn, index int) {
	s := &run.slots[c.index*run.depth+index]
	s.sent = run.at
	c.out = frames.AppendAcquire(c.out, waitSeconds, leaseSeconds, uint64(index), s.key)
}

func (run *ownKeys) take(c *conn, r *frames.Reply) error {
	index := slotOf(r.Text)
	if index < 0 || index >= run.depth {
		return fmt.Errorf("load: reply %c for the key %q", r.Op, r.Text)
	}
	s := &run.slots[c.index*run.depth+index]
	if run.measured {
		run.result.Replies++
		run.all.add(run.at - s.sent)
		if r.Op == frames.Granted {
			run.acquire.add(run.at - s.sent)
		}
	}
	run.result.count(r.Op)
	switch {
	case r.Op == frames.Granted:
		s.sent = run.at
		c.out = frames.AppendRelease(c.out, r.Token, s.key)
	case run.draining:
		run.inFlight--
	default:
		run.sendAcquire(c, index)
	}
	return nil
}
