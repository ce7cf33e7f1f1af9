package daemon

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// Names of metrics that drills rely on.
const (
	MetricKeys       = "ticketing_keys"
	MetricWaiters    = "ticketing_waiters"
	metricGoroutines = "go_goroutines"
	metricHeap       = "go_memstats_heap_alloc_bytes"
	metricGCs        = "go_gc_duration_seconds_count"
)

// Errors of reading.
var (
	ErrNoMetric = errors.New("daemon: metric not found")
	ErrNoGC     = errors.New("daemon: the collector did not run in time")
	ErrNotIdle  = errors.New("daemon: not back to the start in time")
)

// scraper opens a connection for each request, so that none stays in the server's counts.
var scraper = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}, Timeout: 10 * time.Second}

// Metrics are the values of one scrape by name; those of one name with different labels are added up.
type Metrics map[string]float64

// Metrics reads the admin page.
func (p *Process) Metrics() (Metrics, error) {
	resp, err := scraper.Get("http://" + p.Admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("daemon: /metrics says %s", resp.Status)
	}
	return parseMetrics(resp.Body)
}

func parseMetrics(text io.Reader) (Metrics, error) {
	m := make(Metrics)
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		// A label's value may hold blanks and braces; the sample's value follows the last blank and never does.
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			return nil, fmt.Errorf("daemon: metrics line %q", line)
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("daemon: metrics line %q: %w", line, err)
		}
		name, _, _ := strings.Cut(line[:at], "{")
		m[name] += value
	}
	return m, lines.Err()
}

// Get is the value of a metric, or ErrNoMetric.
func (m Metrics) Get(name string) (float64, error) {
	v, ok := m[name]
	if !ok {
		return 0, fmt.Errorf("%w: %s", ErrNoMetric, name)
	}
	return v, nil
}

// Usage is what a server holds at one moment.
type Usage struct {
	Goroutines int
	FDs        int
	Keys       int
	HeapBytes  int64
	RSSBytes   int64
}

// String is the line for people.
func (u Usage) String() string {
	return fmt.Sprintf("goroutines %d, fds %d, keys %d, heap %d KiB, rss %d KiB", u.Goroutines, u.FDs, u.Keys, u.HeapBytes>>10, u.RSSBytes>>10)
}

// Usage reads what the server holds; the heap as it was after a collection, which may take up to limit.
func (p *Process) Usage(limit time.Duration) (Usage, error) {
	heap, err := p.HeapFloor(limit)
	if err != nil {
		return Usage{}, err
	}
	u, err := p.UsageNow()
	u.HeapBytes = heap
	return u, err
}

// AwaitIdle waits until goroutines, descriptors and keys are not above what they were, for limit at most, and then
// returns ErrNotIdle.
func (p *Process) AwaitIdle(before Usage, limit time.Duration) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		u, err := p.UsageNow()
		if err != nil {
			return err
		}
		if u.Goroutines <= before.Goroutines && u.FDs <= before.FDs && u.Keys <= before.Keys {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: %v; it was %v", ErrNotIdle, u, before)
		}
	}
}

// UsageNow reads what the server holds, all but the heap. Goroutines and descriptors are the lowest of some readings: the
// connection of an earlier scrape may not be gone at the first.
func (p *Process) UsageNow() (u Usage, err error) {
	u.Goroutines, u.FDs = math.MaxInt, math.MaxInt
	for range 3 {
		m, err := p.Metrics()
		if err != nil {
			return u, err
		}
		goroutines, err := m.Get(metricGoroutines)
		if err != nil {
			return u, err
		}
		keys, err := m.Get(MetricKeys)
		if err != nil {
			return u, err
		}
		fds, err := p.FDs()
		if err != nil {
			return u, err
		}
		u.Goroutines, u.FDs, u.Keys = min(u.Goroutines, int(goroutines)), min(u.FDs, fds), int(keys)
	}
	u.RSSBytes, err = p.RSS()
	return u, err
}

// FDs is the number of open file descriptors.
func (p *Process) FDs() (int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID))
	return len(entries), err
}

// RSS is the resident memory in bytes.
func (p *Process) RSS() (int64, error) {
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.PID))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(rollup) {
		if rest, ok := bytes.CutPrefix(line, []byte("Rss:")); ok {
			kib, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("daemon: no Rss in smaps_rollup of %d", p.PID)
}

// HeapFloor is the heap in use right after a collection: the lowest value seen while some collections pass. An idle Go
// program collects only every two minutes; here it is made to by scraping, for every scrape leaves some garbage.
func (p *Process) HeapFloor(limit time.Duration) (int64, error) {
	floor := math.Inf(1)
	first := -1.0
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		m, err := p.Metrics()
		if err != nil {
			return 0, err
		}
		gcs, err := m.Get(metricGCs)
		if err != nil {
			return 0, err
		}
		heap, err := m.Get(metricHeap)
		if err != nil {
			return 0, err
		}
		if first < 0 {
			first = gcs
		}
		if gcs > first {
			floor = min(floor, heap)
		}
		if gcs >= first+3 {
			return int64(floor), nil
		}
	}
	return 0, ErrNoGC
}
