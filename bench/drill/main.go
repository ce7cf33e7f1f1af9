// Command drill makes faults happen to a running service, records what its clients see, and checks that against the
// protocol. It decides which fault comes when, from a seed that it prints; it refuses to know how the service works.
//
//	drill [flags] NAME COUNT
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// drills by name. Those in a network of their own are in network.go.
var drills = map[string]func(*drill) error{
	"single":        single,
	"calm":          calm,
	"kill-leader":   killLeader,
	"kill-follower": killFollower,
	"pause":         pauseLeader,
	"isolate":       isolateLeader,
	"amnesia":       amnesia,
	"kill-majority": killMajority,
	"replace":       replaceAll,
	"churn":         churn,
	"partition":     partition,
}

func usage() {
	var names []string
	for name := range drills { // order does not matter: sorted below
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(os.Stderr, "usage: drill [flags] NAME COUNT\nNAME: %s\n", strings.Join(names, " "))
	flag.PrintDefaults()
}

func parse() (*settings, error) {
	s := &settings{}
	flag.StringVar(&s.bin, "bin", "", "ticketingd (required)")
	flag.StringVar(&s.cli, "cli", "", "ticketing, which forms the cluster; without it FORM=auto does")
	flag.IntVar(&s.nodes, "nodes", 3, "members: 3 or 5 (single: 1)")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()), "decides what happens when")
	flag.BoolVar(&s.durable, "durable", false, "nodes have a data directory")
	flag.DurationVar(&s.election, "election", 0, "election timeout (default 200ms, 1s with -lossy)")
	flag.BoolVar(&s.expectCaught, "expect-caught", false, "the service has a planted fault: succeed if it is caught")
	flag.BoolVar(&s.strict, "strict", false, "fail too when an outage misses its goal")
	flag.BoolVar(&s.lossy, "lossy", false, "partition: 5 % loss and 25±20 ms delay on every link")
	flag.StringVar(&s.shape, "shape", "", "partition: minority, majority, one-way, bridge or ring (default: all in turn)")
	flag.StringVar(&s.keep, "keep", "", "directory for logs and data, kept afterwards (default: a temporary one, kept on failure)")
	flag.StringVar(&s.network, "network", "", "used by the drill itself: the network it runs in")
	flag.DurationVar(&s.limit, "limit", time.Hour, "stop after this time, whatever the count")
	flag.Var(&s.env, "env", "a further setting of the nodes, NAME=value; may be repeated")
	flag.Usage = usage
	flag.Parse()
	if flag.NArg() != 2 || s.bin == "" || drills[flag.Arg(0)] == nil {
		return nil, fmt.Errorf("drill: want -bin, a name and a count")
	}
	count, err := strconv.Atoi(flag.Arg(1))
	if err != nil || count < 1 || count > 100_000 {
		return nil, fmt.Errorf("drill: count %q: want 1 to 100000", flag.Arg(1))
	}
	s.name, s.count = flag.Arg(0), count
	if s.name == "single" {
		s.nodes = 1
	} else if s.nodes != 3 && s.nodes != 5 {
		return nil, fmt.Errorf("drill: %d nodes: want 3 or 5", s.nodes)
	}
	if s.election == 0 {
		s.election = 200 * time.Millisecond
		if s.lossy {
			s.election = time.Second
		}
	}
	return s, nil
}

func main() {
	// A node dies with the thread that started it (fleet.DieWithUs), so that must be one that never ends.
	runtime.LockOSThread()
	s, err := parse()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		usage()
		os.Exit(exitUsage)
	}
	ok, err := run(s, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if !ok {
		os.Exit(exitFailed)
	}
}
