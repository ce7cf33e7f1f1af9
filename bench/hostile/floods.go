package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ticketing-go/ticketing/bench/daemon"
	"github.com/ticketing-go/ticketing/bench/frames"
)

const (
	dripPause      = time.Second
	makeRoomAfter  = time.Second // an unauthenticated connection makes room when it is older (PROTOCOL.md section 1)
	floodStays     = 3 * time.Second
	shortDial      = time.Second
	hopeless       = 100 * time.Millisecond // for the greeting of a connection that may never be accepted
	floodAddresses = 60000
)

// source is a loopback address for connection i of a flood.
func source(i int) string {
	i = i%floodAddresses + 1
	return fmt.Sprintf("127.1.%d.%d", i/250, 1+i%250)
}

func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// drip sends one byte a second of a frame, from many clients, each of which must be gone 5 s after the first.
func drip(ctx context.Context, d *daemon.Process, s sizes) (string, error) {
	conns := make([]*frames.Conn, s.drippers)
	err := each(numbers(s.drippers), func(i int) (err error) {
		conns[i], err = frames.Open(d.Addr, source(i), nil, replyLimit)
		return err
	})
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	if err != nil {
		return "", err
	}
	frame := acquire(0, 1, strings.Repeat("k", 128))
	lives := make([]time.Duration, s.drippers)
	errs := make([]error, s.drippers)
	var all sync.WaitGroup
	for i, c := range conns {
		all.Go(func() { lives[i], errs[i] = dripOne(ctx, c, frame) })
	}
	all.Wait()
	first, last := slices.Min(lives), slices.Max(lives)
	told := fmt.Sprintf("%d drippers, gone after %v to %v", s.drippers, first.Round(time.Millisecond), last.Round(time.Millisecond))
	for _, err := range errs {
		if err != nil {
			return told, err
		}
	}
	if last > frameTimer+timerSlack || first < frameTimer-timerSlack {
		return told, fmt.Errorf("want %v within %v", frameTimer, timerSlack)
	}
	return told, nil
}

// dripOne sends a frame byte by byte until the connection has ended, and returns how long that took from the first byte.
func dripOne(ctx context.Context, c *frames.Conn, frame []byte) (time.Duration, error) {
	began := time.Now()
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() { // ends with stop, or when all is sent
		for _, b := range frame {
			c.Write([]byte{b})
			select {
			case <-stop:
				return
			case <-ctx.Done():
				return
			case <-time.After(dripPause):
			}
		}
	})
	defer writer.Wait()
	defer close(stop)
	r, err := c.Next(2 * frameTimer)
	if err != nil {
		return time.Since(began), fmt.Errorf("dripper: %w", err)
	}
	if r.Op != frames.Error || string(r.Text) != "bad_request" {
		return time.Since(began), fmt.Errorf("dripper: %w: %c%q", frames.ErrAnswer, r.Op, r.Text)
	}
	if r, err := c.Next(2 * frameTimer); err == nil {
		return time.Since(began), fmt.Errorf("dripper: %c%q after the error", r.Op, r.Text)
	}
	return time.Since(began), nil
}

// beyondCap opens twice as many connections as there is room for: exactly the cap is served, the rest closed without a
// byte. Then as many silent ones: they make room for who authenticates.
func beyondCap(_ context.Context, d *daemon.Process, s sizes) (string, error) {
	served, err := fillCap(d, s)
	told := fmt.Sprintf("%d of %d connections served beside the honest one, cap %d", served, 2*s.cap, s.cap)
	if err != nil {
		return told, err
	}
	if served != s.cap-1 {
		return told, fmt.Errorf("want %d", s.cap-1)
	}
	silent := make([]*frames.Conn, 2*s.cap)
	defer func() {
		for _, c := range silent {
			if c != nil {
				c.Close()
			}
		}
	}()
	each(numbers(len(silent)), func(i int) (err error) {
		silent[i], err = frames.Dial(d.Addr, source(i), shortDial)
		return err
	})
	// Who comes while all places are taken by younger ones is closed: the protocol owes a place after makeRoomAfter.
	for deadline := time.Now().Add(makeRoomAfter + timerSlack); ; time.Sleep(50 * time.Millisecond) {
		err := serves(d)
		if err == nil {
			return told + "; a newcomer among silent ones served", nil
		}
		if time.Now().After(deadline) {
			return told, fmt.Errorf("among silent connections: %w", err)
		}
	}
}

// fillCap opens twice the cap and counts who is served, while all that are stay.
func fillCap(d *daemon.Process, s sizes) (int, error) {
	conns := make([]*frames.Conn, 2*s.cap)
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	var served atomic.Int64
	err := each(numbers(len(conns)), func(i int) error {
		c, err := frames.Dial(d.Addr, source(i), replyLimit)
		if err != nil {
			return err
		}
		conns[i] = c
		out, err := c.Answer(nil, nil, replyLimit)
		if err != nil {
			return nil // closed without a byte: there was no room
		}
		if _, err := c.Write(append(out, release("room")...)); err != nil {
			return fmt.Errorf("greeted and not served: %w", err)
		}
		if _, err := c.Next(replyLimit); err != nil {
			return fmt.Errorf("greeted and not served: %w", err)
		}
		served.Add(1)
		return nil
	})
	return int(served.Load()), err
}

// resets opens connections and ends each by RST at another moment of its life.
func resets(ctx context.Context, d *daemon.Process, s sizes) (string, error) {
	told := fmt.Sprintf("%d connections reset", s.resets)
	return told, each(numbers(s.resets), func(i int) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c, err := frames.Dial(d.Addr, source(i), replyLimit)
		if err != nil {
			return err
		}
		defer c.Reset()
		if i%6 == 0 {
			return nil // at once
		}
		out, err := c.Answer(nil, nil, replyLimit)
		if err != nil {
			return err
		}
		key := fmt.Sprintf("reset-%d", i)
		switch i % 6 {
		case 1: // greeted
			return nil
		case 2: // within a frame
			out = append(out, acquire(0, 1, key)[:7]...)
		case 3: // before the grant can be written, or while it is
			out = append(out, acquire(0, 1, key)...)
		case 4: // queued for what another holds, or did
			out = append(out, acquire(1, 1, "reset-hot")...)
		case 5: // with an answer to come that nobody reads
			out = append(out, release(key)...)
		}
		if _, err := c.Write(out); err != nil {
			return err
		}
		return nil
	})
}

// exhaustion holds more connections than the daemon has descriptors for, twice, some of them authenticated.
func exhaustion(ctx context.Context, d *daemon.Process, s sizes) (string, error) {
	told := fmt.Sprintf("%d connections against 64 descriptors, twice", s.beyondFDs)
	for range 2 {
		if err := holdFlood(ctx, d, s.beyondFDs); err != nil {
			return told, err
		}
		if !d.Alive() {
			return told, fmt.Errorf("the daemon ended:\n%s", d.Log())
		}
		left := time.Now()
		for serves(d) != nil {
			if time.Since(left) > honestLimit {
				return told, errors.New("no newcomer is served after the flood")
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return told, nil
}

func holdFlood(ctx context.Context, d *daemon.Process, n int) error {
	conns := make([]*frames.Conn, n)
	each(numbers(n), func(i int) (err error) {
		if conns[i], err = frames.Dial(d.Addr, source(i), shortDial); err != nil || i%2 == 0 {
			return err
		}
		out, err := conns[i].Answer(nil, nil, hopeless)
		if err == nil {
			_, err = conns[i].Write(out)
		}
		return err // whoever finds no room: the daemon's life is what counts
	})
	select {
	case <-ctx.Done():
	case <-d.Exited():
	case <-time.After(floodStays):
	}
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
	return ctx.Err()
}
