// Command load puts one load of package load on a running server and prints what it has shown: a line for people on
// standard error and one of JSON on standard output. Ballast and idle connections can be there meanwhile; with the
// server's process id, what its resident set grows by for them is shown too. The client token, if any, is taken from the
// environment, as CLIENT_TOKEN.
//
//	load -pid $(pidof ticketingd) -conns 64 -depth 48
//	load -pid $(pidof ticketingd) -ballast-keys 1000000 -ballast-waiters 58000 -hot-keys 4
//	load -pid $(pidof ticketingd) -workload none -idle 4000
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/ticketing-go/ticketing/bench/daemon"
	"github.com/ticketing-go/ticketing/bench/load"
)

func main() {
	runtime.GOMAXPROCS(1) // one goroutine works; the servers need the cores
	t := load.Target{Token: []byte(os.Getenv("CLIENT_TOKEN"))}
	flag.StringVar(&t.Addr, "addr", "127.0.0.1:5225", "server, `IP:port`")
	flag.IntVar(&t.PID, "pid", 0, "process id of the server, to read its CPU time and memory")
	workload := flag.String("workload", "own-keys", "own-keys, hot-key or none")
	conns := flag.Int("conns", 64, "connections (own-keys)")
	depth := flag.Int("depth", 16, "requests in flight on a connection (own-keys)")
	waiters := flag.Int("waiters", 64, "waiters (hot-key)")
	keyBytes := flag.Int("key", 24, "bytes of a key")
	warm := flag.Duration("warm", time.Second, "time before the measurement")
	measure := flag.Duration("measure", 3*time.Second, "time of the measurement")
	idle := flag.Int("idle", 0, "idle connections meanwhile")
	ballast := load.Ballast{Conns: 64}
	flag.IntVar(&ballast.Keys, "ballast-keys", 0, "keys held meanwhile")
	flag.IntVar(&ballast.Waiters, "ballast-waiters", 0, "acquires that wait meanwhile")
	flag.IntVar(&ballast.HotKeys, "hot-keys", 4, "held keys that those wait for")
	flag.Parse()
	ballast.KeyBytes = *keyBytes

	var run interface {
		Run(load.Target) (load.Result, error)
	}
	switch *workload {
	case "own-keys":
		run = load.OwnKeys{Conns: *conns, Depth: *depth, KeyBytes: *keyBytes, Warm: *warm, Measure: *measure}
	case "hot-key":
		run = load.HotKey{Waiters: *waiters, KeyBytes: *keyBytes, Warm: *warm, Measure: *measure}
	case "none":
	default:
		exit(fmt.Errorf("no workload %q", *workload))
	}
	if *idle > 0 {
		present(t, growth{What: "idle connections", Count: *idle}, func() (*load.Present, error) { return load.Connect(t, *idle) })
	}
	if ballast.Keys+ballast.Waiters > 0 {
		present(t, growth{What: "keys and waiters", Count: ballast.Keys + ballast.Waiters}, func() (*load.Present, error) { return ballast.Hold(t) })
	}
	if run == nil {
		return
	}
	result, err := run.Run(t)
	if err != nil {
		exit(err)
	}
	show(result)
}

// growth is what the server's resident set has grown by.
type growth struct {
	What      string  `json:"present"`
	Count     int     `json:"count"`
	Bytes     int64   `json:"resident_growth_bytes"`
	BytesEach float64 `json:"resident_growth_bytes_each"`
}

func (g growth) String() string {
	return fmt.Sprintf("%d %s: resident set grew by %d KiB, %.0f bytes each", g.Count, g.What, g.Bytes>>10, g.BytesEach)
}

// present puts something on the server that stays until this process ends.
func present(t load.Target, g growth, hold func() (*load.Present, error)) {
	server := daemon.Process{PID: t.PID}
	before := resident(server)
	if _, err := hold(); err != nil {
		exit(err)
	}
	if t.PID != 0 {
		g.Bytes = resident(server) - before
		g.BytesEach = float64(g.Bytes) / float64(g.Count)
		show(g)
	}
}

func resident(server daemon.Process) int64 {
	if server.PID == 0 {
		return 0
	}
	rss, err := server.RSS()
	if err != nil {
		exit(err)
	}
	return rss
}

func show(v fmt.Stringer) {
	fmt.Fprintln(os.Stderr, v)
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		exit(err)
	}
}

func exit(err error) {
	fmt.Fprintln(os.Stderr, "load:", err)
	os.Exit(1)
}
