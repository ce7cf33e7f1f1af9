package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ticketing-go/ticketing/bench/daemon"
	"github.com/ticketing-go/ticketing/bench/frames"
)

const honestPause = 5 * time.Millisecond // between two turns of the honest client

// honest is a client that acquires and releases a key of its own, on one connection, until it is stopped.
type honest struct {
	quit  chan struct{} // closed by stop
	ended chan error    // one result
	took  []time.Duration
}

// startHonest connects and begins.
func startHonest(p *daemon.Process) (*honest, error) {
	c, err := frames.Open(p.Addr, "127.0.0.2", nil, honestLimit)
	if err != nil {
		return nil, err
	}
	h := &honest{quit: make(chan struct{}), ended: make(chan error, 1)}
	go func() { // ends at stop, or with the first request that is not served
		defer c.Close()
		h.ended <- h.work(c)
	}()
	return h, nil
}

func (h *honest) work(c *frames.Conn) error {
	key := []byte("honest")
	for {
		began := time.Now()
		token, err := c.AcquireKey(key, 5, honestLimit)
		if err == nil {
			err = c.ReleaseKey(key, token, honestLimit)
		}
		if err != nil {
			return fmt.Errorf("honest client, after %d turns: %w", len(h.took), err)
		}
		h.took = append(h.took, time.Since(began))
		select {
		case <-h.quit:
			return nil
		case <-time.After(honestPause):
		}
	}
}

// stop ends the client and tells how it was served.
func (h *honest) stop() (string, error) {
	close(h.quit)
	err := <-h.ended
	if len(h.took) == 0 {
		return "never served", errors.Join(err, errors.New("the honest client was never served"))
	}
	slices.Sort(h.took)
	at := func(q float64) time.Duration { return h.took[int(q*float64(len(h.took)-1))].Round(time.Microsecond) }
	return fmt.Sprintf("%d turns, p50 %v, p99 %v, max %v", len(h.took), at(0.5), at(0.99), at(1)), err
}

// serves checks that a new client is served.
func serves(p *daemon.Process) error {
	c, err := frames.Open(p.Addr, "", nil, honestLimit)
	if err != nil {
		return fmt.Errorf("a new client: %w", err)
	}
	defer c.Close()
	token, err := c.AcquireKey([]byte("newcomer"), 5, honestLimit)
	if err == nil {
		err = c.ReleaseKey([]byte("newcomer"), token, honestLimit)
	}
	if err != nil {
		return fmt.Errorf("a new client: %w", err)
	}
	return nil
}
