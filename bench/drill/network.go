package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/ticketing-go/ticketing/bench/drill/fleet"
	"github.com/ticketing-go/ticketing/bench/drill/netlab"
	"github.com/ticketing-go/ticketing/bench/history"
)

// inNetwork runs the same drill in a network made for it: this process makes the network and relays its packets, and a
// second one, in the namespace of the clients, is the drill.
func inNetwork(s *settings, out io.Writer) (ok bool, err error) {
	var link netlab.Link
	if s.lossy {
		link = netlab.Link{Delay: 25 * time.Millisecond, Jitter: 20 * time.Millisecond, Loss: 0.05}
	}
	lab, err := netlab.New(s.nodes, link)
	if err != nil {
		return false, err
	}
	defer func() {
		if e := lab.Close(); err == nil {
			err = e
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	line := append(lab.ClientPrefix(), self, "-network", lab.Name())
	cmd := exec.Command(line[0], append(line[1:], os.Args[1:]...)...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.SysProcAttr = fleet.DieWithUs()
	if err := cmd.Start(); err != nil {
		return false, err
	}
	signals := make(chan os.Signal, 2) // the signal package drops what nobody takes
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ended := make(chan error, 1) // one end: the goroutine never waits
	// Ends with the process.
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			cmd.Process.Signal(sig)
		case err := <-ended:
			return err == nil, nil
		}
	}
}

// place puts the fleet into the drill's network, if it has one.
func (d *drill) place(o *fleet.Options) {
	if d.network == "" {
		return
	}
	d.lab = netlab.Attach(d.network, d.nodes)
	o.Host, o.Prefix = d.lab.Host, d.lab.Prefix
	if d.lossy { // a lost packet is sent again after some 200 ms, and once more after twice that
		d.settle, d.patience = 2*time.Second, 3*time.Second
	}
}

// healWithin is the goal for the first grant after a heal.
func (d *drill) healWithin() time.Duration {
	if d.lossy {
		return 5 * time.Second
	}
	return 2 * time.Second
}

// shapes of partitions in their turn.
var shapes = []string{"minority", "majority", "one-way", "bridge", "ring"}

// partition cuts links between the nodes, for some election timeouts, and heals them. Clients reach every node all the
// time, so that they would see a minority grant.
func partition(d *drill) error {
	return d.rounds(func(leader *fleet.Node) error {
		shape := d.shape
		if shape == "" {
			shape = shapes[d.result.done%len(shapes)]
		}
		pairs, alone, err := d.cuts(shape, leader.Slot)
		if err != nil {
			return err
		}
		from := d.rec.Now()
		if err := d.lab.Cut(pairs); err != nil {
			return err
		}
		cut := d.rec.Now()
		length := time.Duration((4 + 12*d.rnd.Float64()) * float64(d.election))
		if at, _, ok := d.crew.FirstGrant(length); ok && shape == "minority" {
			d.result.outages = append(d.result.outages, at-from)
		}
		time.Sleep(length - min(length, d.rec.Now()-from))
		healed := d.rec.Now()
		if err := d.lab.Heal(); err != nil {
			return err
		}
		at, _, ok := d.crew.FirstGrant(serveWithin)
		d.rec.Unstable(from, d.rec.Now()+time.Second+d.settle)
		if !ok {
			d.rec.Unstable(from, history.Never)
			return fmt.Errorf("%w: %s: no grant within %v of the heal", errStall, shape, serveWithin)
		}
		d.result.heals = append(d.result.heals, at-healed)
		if at-healed > d.healWithin() {
			d.result.failures = append(d.result.failures,
				fmt.Sprintf("%s: first grant %v after the heal, want %v", shape, at-healed, d.healWithin()))
		}
		d.minority(alone, cut, healed)
		_, err = d.ready()
		return err
	})
}

// minority finds grants of nodes that cannot have had a majority.
func (d *drill) minority(alone []int, cut, healed time.Duration) {
	h := d.rec.History()
	for i := range h.Ops {
		op := &h.Ops[i]
		for _, slot := range alone {
			if op.Node == d.fleet.Nodes[slot].Number() && op.Outcome == history.Granted && op.Call > cut && op.Return < healed {
				d.result.violations++
				d.result.failures = append(d.result.failures, "grant by a minority: "+op.String())
			}
		}
	}
}

// cuts are the directed pairs of a shape, and the slots that have no majority then.
func (d *drill) cuts(shape string, leader int) (pairs [][2]int, alone []int, err error) {
	n := d.nodes
	order := []int{leader}
	for _, o := range d.others(d.fleet.Nodes[leader]) {
		order = append(order, o.Slot)
	}
	split := func(a, b []int) {
		for _, i := range a {
			for _, j := range b {
				pairs = append(pairs, [2]int{i, j}, [2]int{j, i})
			}
		}
	}
	switch shape {
	case "minority": // the leader among few
		alone = order[:n/2]
		split(alone, order[n/2:])
	case "majority": // the leader among many
		alone = order[n-n/2:]
		split(alone, order[:n-n/2])
	case "one-way":
		one := order[d.rnd.IntN(2)] // the leader, or a follower
		deaf := d.rnd.IntN(2) == 0
		for _, i := range order {
			switch {
			case i == one:
			case deaf:
				pairs = append(pairs, [2]int{i, one})
			default:
				pairs = append(pairs, [2]int{one, i})
			}
		}
		alone = []int{one}
	case "bridge": // one node sees both halves, which do not see each other
		half := (n - 1) / 2
		split(order[:half], order[half+1:])
	case "ring":
		if n == 3 { // every two are neighbours: cut one direction
			for i := range n {
				pairs = append(pairs, [2]int{(i + 1) % n, i})
			}
			break
		}
		for i := range n {
			for j := range n {
				if gap := (i - j + n) % n; gap > 1 && gap < n-1 {
					pairs = append(pairs, [2]int{i, j})
				}
			}
		}
	default:
		return nil, nil, fmt.Errorf("drill: shape %q: want one of %v", shape, shapes)
	}
	return pairs, alone, nil
}
