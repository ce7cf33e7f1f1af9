// Command figures measures a product daemon against the ceiling server, or an old daemon against a new one, and prints a
// table with its head (machine, commit, command) as markdown. Both sides are fresh processes in every run and take turns
// load by load, so that what else the machine does meets both; the figure is the median of the runs' ratios.
//
//	go run ./bench/figures --runs 5                    # builds both
//	go run ./bench/figures --server BIN --write docs/BENCHMARKS.md
//	go run ./bench/figures --old BIN --server BIN      # paired, old against new
//
// It refuses to know the server's insides: sockets, /proc and the admin page are all that it reads.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/ticketing-go/ticketing/bench/daemon"
)

// token is the client token of the servers that this command starts; it guards nothing.
const token = "bench-figures-client-token"

// scale is how large and long a measurement is.
type scale struct {
	warm, measure  time.Duration
	ballastKeys    int
	ballastWaiters int
	idle           int // connections
	heapWait       time.Duration
}

var (
	whole = scale{
		warm: time.Second, measure: 3 * time.Second,
		ballastKeys: 1_000_000, ballastWaiters: 58_000, idle: 4000, heapWait: time.Minute,
	}
	quick = scale{
		warm: 100 * time.Millisecond, measure: 300 * time.Millisecond,
		ballastKeys: 20_000, ballastWaiters: 2000, idle: 500, heapWait: time.Minute,
	}
)

// command is what the flags have asked for.
type command struct {
	server, old, ceiling string // programs; empty: built here, but old, which is then not part of it
	runs                 int
	readBuffer           int
	only                 string
	scale                scale
	write                string
}

func main() {
	runtime.GOMAXPROCS(1) // the generator is one goroutine; the servers need the cores
	var c command
	short := flag.Bool("quick", false, "one short run with little ballast: does it work at all")
	flag.StringVar(&c.server, "server", "", "ticketingd to measure, `BIN`; built from this tree if not given")
	flag.StringVar(&c.old, "old", "", "older ticketingd to compare with, `BIN`, instead of the ceiling")
	flag.StringVar(&c.ceiling, "ceiling", "", "ceiling server, `BIN`; built from this tree if not given")
	flag.IntVar(&c.runs, "runs", 5, "runs of each measurement")
	flag.IntVar(&c.readBuffer, "read-buffer", 64<<10, "read buffer of the ceiling, `bytes`; the product's own by default")
	flag.StringVar(&c.only, "only", "", "only `PART`: loads, ballast or memory")
	flag.StringVar(&c.write, "write", "", "put the table between the marks in `FILE`, instead of printing it")
	flag.Parse()
	c.scale = whole
	if *short {
		c.scale, c.runs = quick, 1
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := c.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func (c *command) run(ctx context.Context) error {
	if c.runs < 1 {
		return fmt.Errorf("%d runs", c.runs)
	}
	dir, err := os.MkdirTemp("", "ticketing-figures-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := c.build(ctx, dir); err != nil {
		return err
	}
	started := time.Now()
	report, err := c.measure(ctx)
	if err != nil {
		return err
	}
	text := head(os.Args, started) + report.markdown()
	if c.write != "" {
		return replaceFigures(c.write, text)
	}
	_, err = os.Stdout.WriteString(text)
	return err
}

// build compiles the programs that were not given into dir.
func (c *command) build(ctx context.Context, dir string) (err error) {
	if c.server == "" {
		if c.server, err = daemon.Build(ctx, daemon.Product, dir); err != nil {
			return err
		}
	}
	if c.ceiling == "" && c.old == "" {
		c.ceiling, err = daemon.Build(ctx, daemon.Ceiling, dir)
	}
	return err
}

// measure runs all parts that were asked for.
func (c *command) measure(ctx context.Context) (*report, error) {
	r := newReport(c.old != "")
	for i := range c.runs {
		for _, part := range []struct {
			name string
			run  func(*report, int) error
		}{{"loads", c.loads}, {"ballast", c.ballast}, {"memory", c.memory}} {
			if c.only != "" && c.only != part.name || c.old != "" && part.name != "loads" {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := part.run(r, i); err != nil {
				return nil, fmt.Errorf("run %d, %s: %w", i+1, part.name, err)
			}
		}
	}
	return r, nil
}
