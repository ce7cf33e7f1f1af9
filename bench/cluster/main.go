// Command cluster starts a cluster of ticketingd processes on loopback, forms it, and keeps it until it is told to stop.
// It decides ports, files and what is printed; it knows nothing of locks, and speaks to the nodes only as an operator
// would: by their settings, `ticketing init`, signals and the admin pages. The main goroutine owns the nodes' table; one
// goroutine a process waits for its end, one reads standard input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type options struct {
	server    string
	cli       string
	nodes     int
	supervise time.Duration // below 0: not
	data      string
	json      bool
	interop   bool
}

func main() {
	var o options
	seconds := flag.Float64("supervise", -1, "start a dead node again after so many `SECONDS`")
	flag.StringVar(&o.server, "server", "", "ticketingd")
	flag.StringVar(&o.cli, "cli", "", "ticketing")
	flag.IntVar(&o.nodes, "nodes", 3, "3 or 5")
	flag.StringVar(&o.data, "data", "", "`DIR` for the nodes' data directories; without it all state is in memory")
	flag.BoolVar(&o.json, "json", false, "print one line of JSON, again after each change")
	flag.BoolVar(&o.interop, "interop", false, "the dialogue of the interop harness: addresses and token from INTEROP_*, all wires")
	flag.Parse()
	o.supervise = time.Duration(*seconds * float64(time.Second))
	if flag.NArg() > 0 || o.nodes != 3 && o.nodes != 5 || o.server == "" || o.cli == "" {
		fmt.Fprintln(os.Stderr, "usage: scripts/cluster [--nodes 3|5] [--supervise SECONDS] [--data DIR] [--json] [--interop]")
		os.Exit(2)
	}
	o.json = o.json || o.interop
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// ended says that the process of a slot has ended.
type ended struct {
	slot  int
	pid   int
	state string
}

func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "ticketing-cluster-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	f, err := newFleet(o, dir)
	if err != nil {
		return err
	}
	defer f.stop()
	for slot := range f.nodes {
		if err := f.start(slot); err != nil {
			return err
		}
	}
	if err := f.form(ctx); err != nil {
		return err
	}
	f.show()
	lines := make(chan string)    // unbuffered: a line is done before the next is read
	go readLines(os.Stdin, lines) // ends with its input, or with the process
	return f.serve(ctx, lines)
}

// readLines ends with its input, or with the process.
func readLines(in io.Reader, lines chan<- string) {
	s := bufio.NewScanner(in)
	for s.Scan() {
		lines <- s.Text()
	}
}

// serve starts dead nodes again, as told or by itself, until ctx ends.
func (f *fleet) serve(ctx context.Context, lines <-chan string) error {
	again := make(chan int, len(f.nodes)) // a place for each slot
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-f.ended:
			if f.nodes[e.slot].pid != e.pid {
				continue
			}
			f.nodes[e.slot].pid = 0
			f.say("slot %d: %s", e.slot, e.state)
			if f.o.supervise >= 0 {
				time.AfterFunc(f.o.supervise, func() { again <- e.slot })
			}
		case slot := <-again:
			f.restart(slot)
		case line := <-lines:
			words := strings.Fields(line)
			if len(words) != 2 || words[0] != "restart" {
				f.say("unknown line %q; known: restart SLOT", line)
				continue
			}
			slot, err := strconv.Atoi(words[1])
			if err != nil || slot < 0 || slot >= len(f.nodes) {
				f.say("slot %q: allowed are 0..%d", words[1], len(f.nodes)-1)
				continue
			}
			f.restart(slot)
		}
	}
}

// restart starts a node that is dead, or kills one that lives first, and shows the fleet as it is then.
func (f *fleet) restart(slot int) {
	if n := &f.nodes[slot]; n.pid != 0 {
		n.proc.Process.Kill()
		<-n.gone
		n.pid = 0
	}
	if err := f.start(slot); err != nil {
		f.say("slot %d: %v", slot, err)
		return
	}
	f.show()
}

// form forms the cluster and waits until every node is ready. Nodes that find their place in a data directory go on by
// themselves.
func (f *fleet) form(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, formTimeout)
	defer cancel()
	if f.fresh {
		if err := f.init(ctx); err != nil {
			return err
		}
	}
	for slot := range f.nodes {
		for {
			s, err := f.status(ctx, slot)
			if err == nil && s.Ready {
				f.fingerprint = s.Fingerprint
				break
			}
			if err == nil {
				err = errors.New(s.Reason)
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("slot %d is not ready: %w", slot, err)
			case e := <-f.ended:
				return fmt.Errorf("slot %d: %s; see %s", e.slot, e.state, f.nodes[e.slot].log)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

const (
	formTimeout = 60 * time.Second
	stopTimeout = 8 * time.Second // a daemon stops within 5
)

// show prints what a person, or a program, needs to use the cluster.
func (f *fleet) show() {
	clients, admins, pids := map[string][]string{}, []string{}, []int{}
	for _, n := range f.nodes {
		for wire, address := range n.clients {
			clients[wire] = append(clients[wire], address)
		}
		admins = append(admins, n.admin)
		pids = append(pids, n.pid)
	}
	if f.o.json {
		json.NewEncoder(os.Stdout).Encode(struct {
			Clients     map[string][]string `json:"clients"`
			Admin       []string            `json:"admin"`
			PIDs        []int               `json:"pids"`
			Fingerprint string              `json:"identity_fingerprint"`
		}{clients, admins, pids, f.fingerprint})
		return
	}
	fmt.Println("identity_fingerprint", f.fingerprint)
	for slot, n := range f.nodes {
		fmt.Printf("slot %d  clients %s  peer %s  admin http://%s/status  pid %d  log %s\n",
			slot, n.clients["v1"], n.peer, n.admin, n.pid, n.log)
	}
	fmt.Printf("members: PEER_TOKEN_FILE=%s ticketing members --peer %s\n", filepath.Join(f.dir, "peer.token"), f.nodes[0].peer)
	fmt.Println("Ctrl-C stops all; a line `restart SLOT` starts a node again")
}

func (f *fleet) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "cluster: "+format+"\n", args...)
}
