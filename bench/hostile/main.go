// Command hostile runs clients against a daemon that no protocol allows, while an honest client works beside them: frames
// that break every rule, cut at every place; clients that drip; more connections than there is room for; resets; and no
// file descriptors left. In each drill the process must live, the honest client be served all through it, and everything
// be back afterwards.
//
//	go run ./bench/hostile                       # all drills, in full
//	go run ./bench/hostile --only drip --server BIN
//
// What is expected comes from PROTOCOL.md, by a model of its tables that shares nothing with the product.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ticketing-go/ticketing/bench/daemon"
)

// Limits of all drills.
const (
	replyLimit  = 10 * time.Second // of one reply
	honestLimit = 2 * time.Second  // of one request of the honest client
	idleLimit   = 20 * time.Second // for goroutines, descriptors and keys to be back
	dialers     = 16               // connections that are opened at a time
)

// sizes are how large the drills are.
type sizes struct {
	mutations int // malformed frames made at random, beside those that are listed
	everyCut  int // 1: every split point, n: every n-th
	drippers  int
	cap       int // MAX_CONNECTIONS where it is exceeded
	resets    int
	beyondFDs int // connections against 64 descriptors
}

var (
	full  = sizes{mutations: 400, everyCut: 1, drippers: 2000, cap: 1024, resets: 100_000, beyondFDs: 400}
	short = sizes{mutations: 150, everyCut: 1, drippers: 200, cap: 128, resets: 3000, beyondFDs: 150}
)

// drill is one attack on a daemon that env has shaped.
type drill struct {
	name   string
	env    func(sizes) []string
	files  int // limit of file descriptors; 0: the system's
	attack func(ctx context.Context, d *daemon.Process, s sizes) (told string, err error)
}

func drills() []drill {
	most := func(sizes) []string { return []string{"MAX_CONNECTIONS=8192"} }
	return []drill{
		{name: "malformed", env: most, attack: malformed},
		{name: "drip", env: most, attack: drip},
		{name: "cap", env: func(s sizes) []string { return []string{fmt.Sprintf("MAX_CONNECTIONS=%d", s.cap)} }, attack: beyondCap},
		{name: "resets", attack: resets},
		{name: "descriptors", files: 64, attack: exhaustion},
	}
}

func main() {
	only := flag.String("only", "", "only this `DRILL`")
	server := flag.String("server", "", "ticketingd to test, `BIN`; built from this tree if not given")
	small := flag.Bool("short", false, "small counts, as in go test")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	size := full
	if *small {
		size = short
	}
	if err := runAll(ctx, *server, *only, size); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

func runAll(ctx context.Context, bin, only string, size sizes) error {
	if bin == "" {
		dir, err := os.MkdirTemp("", "ticketing-hostile-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if bin, err = daemon.Build(ctx, daemon.Product, dir); err != nil {
			return err
		}
	}
	var failed []string
	for _, d := range drills() {
		if only != "" && d.name != only {
			continue
		}
		began := time.Now()
		told, err := d.run(ctx, bin, size)
		result := "pass"
		if err != nil {
			result = "FAIL: " + err.Error()
			failed = append(failed, d.name)
		}
		fmt.Printf("%-12s %5.1fs  %s  %s\n", d.name, time.Since(began).Seconds(), told, result)
	}
	if failed != nil {
		return errors.New("failed: " + strings.Join(failed, ", "))
	}
	return ctx.Err()
}

// run is one drill: baseline, honest client, attack, and everything back.
func (d drill) run(ctx context.Context, bin string, size sizes) (told string, err error) {
	options := daemon.Options{Bin: bin, OpenFiles: d.files}
	if d.env != nil {
		options.Env = d.env(size)
	}
	p, err := daemon.StartProduct(options)
	if err != nil {
		return "", err
	}
	defer func() {
		if e := p.Stop(); e != nil {
			err = errors.Join(err, fmt.Errorf("%w\n%s", e, p.Log()))
		}
	}()
	before, err := p.UsageNow()
	if err != nil {
		return "", err
	}
	honest, err := startHonest(p)
	if err != nil {
		return "", err
	}
	told, err = d.attack(ctx, p, size)
	served, honestErr := honest.stop()
	told += "; honest: " + served
	err = errors.Join(err, honestErr)
	if p.Alive() {
		err = errors.Join(err, p.AwaitIdle(before, idleLimit), serves(p))
	}
	return told, err
}
