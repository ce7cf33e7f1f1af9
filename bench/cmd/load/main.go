// Command load puts one load of package load on a running server and prints what it has shown: a line for people on
// standard error and one of JSON on standard output. The client token, if any, is taken from the environment, as
// CLIENT_TOKEN.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/ticketing-go/ticketing/bench/load"
)

func main() {
	runtime.GOMAXPROCS(1) // one goroutine works; the collector may have the rest of its time
	var t load.Target
	flag.StringVar(&t.Addr, "addr", "127.0.0.1:5225", "server, `IP:port`")
	flag.IntVar(&t.PID, "pid", 0, "process id of the server, to read its CPU time")
	workload := flag.String("workload", "own-keys", "own-keys or hot-key")
	conns := flag.Int("conns", 64, "connections (own-keys)")
	depth := flag.Int("depth", 16, "requests in flight on a connection (own-keys)")
	waiters := flag.Int("waiters", 64, "waiters (hot-key)")
	keyBytes := flag.Int("key", 24, "bytes of a key")
	warm := flag.Duration("warm", time.Second, "time before the measurement")
	measure := flag.Duration("measure", 3*time.Second, "time of the measurement")
	flag.Parse()
	t.Token = []byte(os.Getenv("CLIENT_TOKEN"))

	var result load.Result
	var err error
	switch *workload {
	case "own-keys":
		result, err = load.OwnKeys{Conns: *conns, Depth: *depth, KeyBytes: *keyBytes, Warm: *warm, Measure: *measure}.Run(t)
	case "hot-key":
		result, err = load.HotKey{Waiters: *waiters, KeyBytes: *keyBytes, Warm: *warm, Measure: *measure}.Run(t)
	default:
		err = fmt.Errorf("no workload %q", *workload)
	}
	if err == nil {
		fmt.Fprintln(os.Stderr, result)
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}
