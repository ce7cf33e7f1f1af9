// Command trio measures what lock logic costs in a cluster of three: the product against a build of it that grants
// everything (tag nolocks) and has the same event loops, rings, gates and Raft. Both run as three processes on loopback,
// one cluster at a time, in turns; the load is on this machine too. It decides what is measured; how load is made is
// package load's. It runs on the main goroutine, beside one goroutine a process that daemon starts.
//
//	go run ./bench/trio [-runs 5] [-measure 3s]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/ticketing-go/ticketing/bench/daemon"
	"github.com/ticketing-go/ticketing/bench/load"
)

const (
	nodes       = 3
	formTimeout = 20 * time.Second
	peerOffset  = 1000
)

var errNoLeader = errors.New("trio: no leader in time")

// cluster is three processes that have formed one.
type cluster struct {
	processes []*daemon.Process
	leader    *daemon.Process
}

// ports finds three ports that are free, with those of the peers above them.
func ports() ([]string, error) {
	var found []string
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for port := 21000; len(found) < nodes && port < 30000; port++ {
		c, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		p, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+peerOffset))
		if err != nil {
			c.Close()
			continue
		}
		held = append(held, c, p)
		found = append(found, c.Addr().String())
	}
	if len(found) < nodes {
		return nil, errors.New("trio: no free ports")
	}
	return found, nil
}

func start(bin string) (*cluster, error) {
	addrs, err := ports()
	if err != nil {
		return nil, err
	}
	c := &cluster{}
	for _, addr := range addrs {
		p, err := daemon.StartProduct(daemon.Options{Bin: bin, Addr: addr, Env: []string{
			"CLUSTER=" + strings.Join(addrs, ","), "FORM=auto", "LOG_LEVEL=error",
		}})
		if err != nil {
			c.stop()
			return nil, err
		}
		c.processes = append(c.processes, p)
	}
	for end := time.Now().Add(formTimeout); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		for _, p := range c.processes {
			if leads(p) {
				c.leader = p
				return c, nil
			}
		}
	}
	c.stop()
	return nil, errNoLeader
}

// leads says whether a node leads a cluster in which all have settled.
func leads(p *daemon.Process) bool {
	client := http.Client{Timeout: time.Second}
	r, err := client.Get("http://" + p.Admin + "/status")
	if err != nil {
		return false
	}
	defer r.Body.Close()
	var page struct {
		Ready   bool `json:"ready"`
		Cluster struct {
			Role    string            `json:"role"`
			Members []json.RawMessage `json:"members"`
		} `json:"cluster"`
	}
	return json.NewDecoder(r.Body).Decode(&page) == nil && page.Ready && page.Cluster.Role == "leader" && len(page.Cluster.Members) == nodes
}

func (c *cluster) stop() {
	for _, p := range c.processes {
		if err := p.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop:", err)
		}
	}
}

func build(dir, name string, tags string) (string, error) {
	bin := dir + "/" + name
	out, err := exec.CommandContext(context.Background(), "go", "build", "-tags", tags, "-o", bin, daemon.Product).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return bin, nil
}

func main() {
	runs := flag.Int("runs", 5, "runs of each measurement")
	measure := flag.Duration("measure", 3*time.Second, "time of a measurement")
	flag.Parse()
	if err := run(*runs, *measure); err != nil {
		fmt.Fprintln(os.Stderr, "trio:", err)
		os.Exit(1)
	}
}

func run(runs int, measure time.Duration) error {
	dir, err := os.MkdirTemp("", "trio")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	product, err := build(dir, "ticketingd", "")
	if err != nil {
		return err
	}
	reference, err := build(dir, "nolocks", "nolocks")
	if err != nil {
		return err
	}
	loads := []load.OwnKeys{
		{Conns: 64, Depth: 12, KeyBytes: 24, Warm: time.Second, Measure: measure},
		{Conns: 64, Depth: 16, KeyBytes: 24, Warm: time.Second, Measure: measure},
		{Conns: 1, Depth: 1, KeyBytes: 24, Warm: time.Second, Measure: measure},
	}
	results := map[string][]load.Result{}
	for i := range runs {
		sides := []string{product, reference}
		if i%2 == 1 {
			slices.Reverse(sides)
		}
		for _, bin := range sides {
			if err := measureOn(bin, loads, results); err != nil {
				return err
			}
		}
	}
	report(loads, results, product, reference)
	return nil
}

func measureOn(bin string, loads []load.OwnKeys, results map[string][]load.Result) error {
	c, err := start(bin)
	if err != nil {
		return err
	}
	defer c.stop()
	for i, l := range loads {
		r, err := l.Run(load.Target{Addr: c.leader.Addr, PID: c.leader.PID})
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, bin[strings.LastIndexByte(bin, '/')+1:], r)
		key := fmt.Sprint(bin, i)
		results[key] = append(results[key], r)
	}
	return nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func report(loads []load.OwnKeys, results map[string][]load.Result, product, reference string) {
	fmt.Println("| load on a cluster of three | figure | product | reference without lock logic | ratio, median of runs |")
	fmt.Println("| --- | --- | --- | --- | --- |")
	for i, l := range loads {
		what, of := "replies/s", func(r load.Result) float64 { return r.RepliesPerSecond }
		if l.Conns == 1 {
			what, of = "acquire p50, µs", func(r load.Result) float64 { return r.AcquireP50 }
		}
		var p, q, ratios []float64
		for k, r := range results[fmt.Sprint(product, i)] {
			p = append(p, of(r))
			q = append(q, of(results[fmt.Sprint(reference, i)][k]))
			ratios = append(ratios, p[k]/q[k])
		}
		ratio := median(ratios)
		fmt.Printf("| %d × %d | %s | %.0f | %.0f | %.2f |\n", l.Conns, l.Depth, what, median(p), median(q), ratio)
	}
}
