// Package load measures a server of wire v1 from outside: rates, latencies, the server's CPU, and what presence costs.
// It decides what is sent when and what counts; it refuses to know the server's insides, but for the process id whose
// CPU time it reads. Each function runs its whole load on the calling goroutine, over one epoll, so that send and read
// times of all connections come from one clock; several runs at once only disturb each other.
package load

import (
	"errors"
	"fmt"
	"time"

	"github.com/ticketing-go/ticketing/bench/frames"
)

// Errors of a run, beside those of the system.
var (
	ErrUnsupported = errors.New("load: the generator needs Linux")
	ErrRefused     = errors.New("load: refused by the server")
	ErrStalled     = errors.New("load: no reply came in time")
)

// Limits of the generator.
const (
	MaxDepth     = 4096 // slots of a connection: two characters of the key name one
	MinKeyBytes  = 20   // room for what makes a key unique
	stallTimeout = 10 * time.Second
	leaseSeconds = 250 // the longest: a lease never ends within a run
	waitSeconds  = 255 // the longest: a wait never ends within a run
)

// Target is the server under load.
type Target struct {
	Addr  string // IP:port
	Token []byte // client token; empty for an open server
	PID   int    // whose CPU time is read; 0: none
}

// Result is what one run has shown. Times are in microseconds.
type Result struct {
	Workload         string  `json:"workload"`
	Conns            int     `json:"conns"`
	Depth            int     `json:"depth"`
	KeyBytes         int     `json:"key_bytes"`
	Seconds          float64 `json:"seconds"`
	Replies          uint64  `json:"replies"`
	RepliesPerSecond float64 `json:"replies_per_second"`
	ServerCPUPerOp   float64 `json:"server_cpu_us_per_reply"`
	ServerCores      float64 `json:"server_cores"`
	GeneratorCores   float64 `json:"generator_cores"` // near 1: the generator may be what limits the rate
	AcquireP50       float64 `json:"acquire_p50_us"`
	AcquireP99       float64 `json:"acquire_p99_us"`
	AcquireMax       float64 `json:"acquire_max_us"`
	RoundTripP50     float64 `json:"round_trip_p50_us"` // acquires and releases together
	HandOverP50      float64 `json:"hand_over_p50_us,omitempty"`
	HandOverP99      float64 `json:"hand_over_p99_us,omitempty"`
	HandOvers        uint64  `json:"hand_overs,omitempty"`
	Busy             uint64  `json:"busy"`
	TimedOut         uint64  `json:"timed_out"`
	NotHeld          uint64  `json:"not_held"`
	Void             bool    `json:"void"` // a B, T or N came: the run says nothing about a server that answers all
}

// count counts a reply that makes the run void, whenever it comes.
func (r *Result) count(op frames.Op) {
	switch op {
	case frames.Busy:
		r.Busy++
	case frames.TimedOut:
		r.TimedOut++
	case frames.NotHeld:
		r.NotHeld++
	default:
		return
	}
	r.Void = true
}

// String is the line for people.
func (r Result) String() string {
	s := fmt.Sprintf("%-9s %4d x %-3d key %-3d %10.0f replies/s  cpu/reply %.3f us (cores %.2f, generator %.2f)  acquire p50 %.1f p99 %.1f us",
		r.Workload, r.Conns, r.Depth, r.KeyBytes, r.RepliesPerSecond, r.ServerCPUPerOp, r.ServerCores, r.GeneratorCores, r.AcquireP50, r.AcquireP99)
	if r.HandOvers > 0 {
		s += fmt.Sprintf("  hand-over p50 %.1f p99 %.1f us", r.HandOverP50, r.HandOverP99)
	}
	if r.Void {
		s += fmt.Sprintf("  VOID: B %d T %d N %d", r.Busy, r.TimedOut, r.NotHeld)
	}
	return s
}

// OwnKeys is the load in which every slot acquires and releases a key of its own, again and again.
type OwnKeys struct {
	Conns    int
	Depth    int // requests in flight on a connection, 1..MaxDepth
	KeyBytes int // MinKeyBytes..128
	Warm     time.Duration
	Measure  time.Duration
}

// HotKey is the load in which Waiters acquires queue for one key while one holds it, each on a connection of its own;
// the holder releases at once and queues again.
type HotKey struct {
	Waiters  int
	KeyBytes int // MinKeyBytes..128
	Warm     time.Duration
	Measure  time.Duration
}

// Ballast is what is present on a server while something else is measured. It holds for the longest lease and wait of
// the wire, 250 s.
type Ballast struct {
	Keys     int // keys held
	Waiters  int // acquires that wait, spread evenly over HotKeys held keys
	HotKeys  int // at least 1 if there are waiters
	Conns    int // connections that carry it
	KeyBytes int // MinKeyBytes..128
}
