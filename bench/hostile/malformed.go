package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ticketing-go/ticketing/bench/daemon"
	"github.com/ticketing-go/ticketing/bench/frames"
)

const (
	fastAtOnce = 256  // conversations in one go; the first pieces of all are sent before the second of any
	slowAtOnce = 1500 // likewise, of those that end by the frame timer
	controls   = 8    // connections whose round trips tell that the loops have been round
	frameTimer = 5 * time.Second
	timerSlack = 500 * time.Millisecond // to which time limits are kept
	corpusSeed = 20
)

// trial is one conversation, cut in two at a place, or whole.
type trial struct {
	talk
	cut  int // 0: whole
	id   string
	conn *frames.Conn
	sent time.Time // when the last piece was
}

// malformed sends every conversation of the corpus whole and cut at every place; each must end with its verdict, and the
// same one.
func malformed(ctx context.Context, d *daemon.Process, s sizes) (string, error) {
	random := rand.New(rand.NewPCG(corpusSeed, uint64(s.mutations)))
	talks := corpus(random, s.mutations)
	var fast, slow []*trial
	for _, t := range talks {
		list := &fast
		if t.slow {
			list = &slow
		}
		for cut := 0; cut < len(t.in); cut += s.everyCut {
			*list = append(*list, &trial{talk: t, cut: cut})
		}
	}
	told := fmt.Sprintf("%d malformed conversations (seed %d), %d trials", len(talks), corpusSeed, len(fast)+len(slow))
	for _, lot := range []struct {
		trials []*trial
		size   int
	}{{slow, slowAtOnce}, {fast, fastAtOnce}} {
		for batch := range slices.Chunk(lot.trials, lot.size) {
			if err := ctx.Err(); err != nil {
				return told, err
			}
			if err := tryAll(d, batch); err != nil {
				return told, err
			}
		}
	}
	return told, nil
}

// tryAll runs a batch of trials at once.
func tryAll(d *daemon.Process, batch []*trial) error {
	defer func() {
		for _, t := range batch {
			if t.conn != nil {
				t.conn.Close()
			}
		}
	}()
	if err := each(batch, func(t *trial) error { return t.begin(d) }); err != nil {
		return err
	}
	if err := roundTrips(d); err != nil {
		return err
	}
	if err := each(batch, (*trial).finish); err != nil {
		return err
	}
	return each(batch, (*trial).check)
}

// each calls f for all of list, on dialers goroutines that end with it, and joins the first few errors.
func each[T any](list []T, f func(T) error) error {
	var next atomic.Int64
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	for range dialers {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(list) {
					return
				}
				if err := f(list[i]); err != nil {
					mu.Lock()
					if len(errs) < 5 {
						errs = append(errs, err)
					}
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

var trials atomic.Uint32 // numbers the connections of the process, for their keys

// begin connects, and sends the answer with the first piece right behind it.
func (t *trial) begin(d *daemon.Process) (err error) {
	t.id = fmt.Sprintf("%08x", trials.Add(1))
	t.in = bytes.ReplaceAll(t.in, []byte(unique), []byte(t.id))
	t.want = strings.ReplaceAll(t.want, unique, t.id)
	if t.conn, err = frames.Dial(d.Addr, "", replyLimit); err != nil {
		return err
	}
	out, err := t.conn.Answer(nil, nil, replyLimit)
	if err != nil {
		return err
	}
	t.sent = time.Now()
	_, err = t.conn.Write(append(out, t.in[:t.cut]...))
	return err
}

// finish sends the rest. The server may have decided on the first piece and be gone: that is no error.
func (t *trial) finish() error {
	t.sent = time.Now()
	t.conn.Write(t.in[t.cut:])
	return nil
}

// check reads to the end and compares.
func (t *trial) check() error {
	var got []string
	for {
		r, err := t.conn.Next(replyLimit)
		if err == nil {
			got = append(got, tell(r.Op, r.Text))
			continue
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			got = append(got, err.Error())
		}
		break
	}
	took := time.Since(t.sent)
	if n := len(got); n > 1 {
		slices.Sort(got[:n-1])
	}
	if all := strings.Join(got, " "); all != t.want {
		return fmt.Errorf("%q cut at %d: got %s, want %s", t.in, t.cut, all, t.want)
	}
	if t.slow && took > frameTimer+timerSlack {
		return fmt.Errorf("%q cut at %d: closed after %v, want %v", t.in, t.cut, took, frameTimer)
	}
	return nil
}

// roundTrips returns when some connections, spread by the kernel over all loops, have been answered: what was sent before
// has been read by then, for a loop serves what is ready in turn.
func roundTrips(d *daemon.Process) error {
	for range controls {
		c, err := frames.Open(d.Addr, "", nil, replyLimit)
		if err != nil {
			return err
		}
		_, err = c.Write(release("control"))
		if err == nil {
			_, err = c.Next(replyLimit)
		}
		c.Close()
		if err != nil {
			return fmt.Errorf("control connection: %w", err)
		}
	}
	return nil
}
