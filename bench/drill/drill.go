package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ticketing-go/ticketing/bench/drill/fleet"
	"github.com/ticketing-go/ticketing/bench/drill/netlab"
	"github.com/ticketing-go/ticketing/bench/drill/session"
	"github.com/ticketing-go/ticketing/bench/history"
)

type settings struct {
	name         string
	count        int
	bin, cli     string
	nodes        int
	seed         uint64
	durable      bool
	election     time.Duration
	expectCaught bool
	strict       bool
	lossy        bool
	shape        string
	keep         string
	network      string
	limit        time.Duration
	env          list
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

const (
	readyWithin = 30 * time.Second
	serveWithin = 15 * time.Second // longest time without a grant that is not called a stall
	calmAfter   = 300 * time.Millisecond
	overdue     = 5 * time.Second // session.Dialer.Overdue
	chapterOps  = 150_000         // operations after which a history is checked and a new one begun
	chapterLong = 50              // faults likewise
)

// errStall says that the service, or a part of it, did not come back.
var errStall = errors.New("stall")

// errStop says that the drill was interrupted or its time is over.
var errStop = errors.New("stopped before its count")

// errBroken says that a rule was broken: what comes after only repeats it.
var errBroken = errors.New("ended at the first violation")

// drill is one run of one drill.
type drill struct {
	*settings
	out   io.Writer
	dir   string
	rnd   *rand.Rand
	fleet *fleet.Fleet
	route *session.Route
	lab   *netlab.Lab // nil: loopback
	began time.Time
	quit  chan os.Signal

	settle   time.Duration // session.Dialer.Settle and Patience
	patience time.Duration

	// The present chapter.
	rec     *history.Recorder
	crew    *session.Crew
	chapter int
	faults  int
	kills   []kill
	steady  bool // the leader stays all through the chapter: its clients must see no error
	forgets bool // a process that is started again has forgotten who holds what, and grants nothing until that is over
	above   uint64

	result result
}

// kill is the end of a leader, for the outage of the hot key.
type kill struct {
	at   time.Duration
	node int32
}

// run runs a drill from start to verdict. ok is what the exit code says.
func run(s *settings, out io.Writer) (ok bool, err error) {
	if s.name == "partition" && s.network == "" {
		return inNetwork(s, out)
	}
	d := &drill{settings: s, out: out, rnd: rand.New(rand.NewPCG(s.seed, 0xd1)), began: time.Now(),
		quit: make(chan os.Signal, 2), settle: 250 * time.Millisecond, patience: time.Second}
	signal.Notify(d.quit, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(d.quit)
	fmt.Fprintf(out, "drill %s count=%d nodes=%d seed=%d durable=%v lossy=%v election=%v\n",
		s.name, s.count, s.nodes, s.seed, s.durable, s.lossy, s.election)
	if s.keep != "" {
		if err := os.MkdirAll(s.keep, 0o755); err != nil {
			return false, err
		}
	}
	if d.dir, err = os.MkdirTemp(s.keep, "drill-"+s.name+"-"); err != nil {
		return false, err
	}
	if err := d.start(); err != nil {
		d.result.failures = append(d.result.failures, err.Error())
	} else {
		if err := drills[s.name](d); err != nil {
			d.result.failures = append(d.result.failures, err.Error())
		}
		if d.crew != nil {
			d.end()
		}
	}
	if d.fleet != nil {
		d.fleet.Kill()
	}
	ok = d.verdict()
	if s.keep != "" || !ok {
		fmt.Fprintf(out, "logs and data: %s\n", d.dir)
		return ok, nil
	}
	return ok, os.RemoveAll(d.dir)
}

// start makes the fleet and starts it.
func (d *drill) start() error {
	o := fleet.Options{Bin: d.bin, CLI: d.cli, Nodes: d.nodes, Dir: d.dir, Durable: d.durable, Election: d.election,
		Env: d.env}
	d.place(&o)
	var err error
	if d.fleet, err = fleet.New(o); err != nil {
		return err
	}
	d.route = &session.Route{}
	for _, n := range d.fleet.Nodes {
		d.route.Places = append(d.route.Places, session.Place{Addr: n.Addr, Node: n.Number})
	}
	return d.fleet.Start(readyWithin)
}

// begin starts a chapter: a new history, and a crew on keys of its own.
func (d *drill) begin(load session.Load) {
	d.chapter++
	d.faults, d.kills = 0, nil
	d.rec = history.NewRecorder(d.above)
	load.Prefix = fmt.Sprintf("c%d", d.chapter)
	load.Seed = d.seed + uint64(d.chapter)
	d.crew = session.NewCrew(d.route, d.dialer(d.settle), load)
}

// dialer makes sessions of the present chapter.
func (d *drill) dialer(settle time.Duration) *session.Dialer {
	return &session.Dialer{Token: d.fleet.Token, Log: d.rec, Hints: d.route.Told, Settle: settle, Patience: d.patience,
		Overdue: overdue}
}

// usual is the load of most drills: some hundred operations a second.
func usual() session.Load {
	return session.Load{Keys: 12, Seats: 6, Workers: 6, Pause: 30 * time.Millisecond, Hot: true, Lapse: 24}
}

func (d *drill) hotKey() string { return session.Load{Prefix: fmt.Sprintf("c%d", d.chapter)}.HotKey() }

// end ends a chapter and checks it. Tokens of the next one must be above.
func (d *drill) end() {
	stopped := d.rec.Now()
	d.crew.Stop()
	d.crew = nil
	h := d.rec.History()
	if d.forgets {
		forgetN(h)
	}
	known := h.Unstable
	h.Unstable = append(slices.Clip(known), h.Changes(calmAfter)...)
	r := history.Check(h, d.limits())
	d.above = r.LastToken
	if !r.OK() {
		d.result.failures = append(d.result.failures, d.keepHistory(h)...)
	}
	d.result.add(d, h, r, stopped)
	for i, v := range r.Violations {
		if i == 5 {
			fmt.Fprintf(d.out, "  … and %d more\n", len(r.Violations)-i)
			break
		}
		fmt.Fprintf(d.out, "  VIOLATION in chapter %d: %v\n", d.chapter, v)
	}
}

// keepHistory writes a history that broke a rule down, one operation a line by Call, with what excused lateness.
func (d *drill) keepHistory(h *history.History) (failed []string) {
	ops := slices.Clone(h.Ops)
	slices.SortFunc(ops, func(a, b history.Op) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for what, ws := range map[string][]history.Window{"unstable": h.Unstable, "stall": h.Stalls} { // order does not matter
		for _, w := range ws {
			fmt.Fprintf(&b, "%s %v..%v\n", what, w.From, w.To)
		}
	}
	for i := range ops {
		fmt.Fprintf(&b, "%v queued %v gone %v\n", &ops[i], ops[i].Queued, ops[i].Gone)
	}
	name := filepath.Join(d.dir, fmt.Sprintf("chapter-%d.txt", d.chapter))
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// limits are those of the protocol. Where packets are lost, one is sent again after some 200 ms, and after twice that
// when it is lost again; four in a row are one in 160,000.
func (d *drill) limits() history.Limits {
	l := history.DefaultLimits()
	if d.lossy {
		l.HandOver, l.Timely = 4*time.Second, 4*time.Second
	}
	return l
}

// turn is called after every fault: it begins a new chapter when this one is long.
func (d *drill) turn(load session.Load) {
	d.result.done++
	if d.faults++; d.faults >= chapterLong || d.rec.Len() >= chapterOps {
		d.end()
		d.begin(load)
	}
}

// over says whether the drill must stop now: interrupted, out of time, or a violation found.
func (d *drill) over() error {
	select {
	case <-d.quit:
		return errStop
	default:
	}
	if time.Since(d.began) > d.limit {
		return errStop
	}
	if d.result.violations > 0 {
		return errBroken
	}
	return nil
}

// pause lets the load run.
func (d *drill) pause(from, to time.Duration) {
	time.Sleep(from + time.Duration(d.rnd.Int64N(int64(to-from))))
}

// leader waits until somebody grants, and says who.
func (d *drill) leader() (*fleet.Node, error) {
	_, place, ok := d.crew.FirstGrant(serveWithin)
	if !ok {
		return nil, fmt.Errorf("%w: no grant within %v with all nodes up", errStall, serveWithin)
	}
	return d.fleet.Nodes[place], nil
}

// others are all nodes but one, in random order.
func (d *drill) others(not *fleet.Node) []*fleet.Node {
	var out []*fleet.Node
	for _, i := range d.rnd.Perm(len(d.fleet.Nodes)) {
		if n := d.fleet.Nodes[i]; n != not {
			out = append(out, n)
		}
	}
	return out
}

// served waits for the first grant after a fault that began at from, and records the span without a leader.
func (d *drill) served(from time.Duration) (outage time.Duration, by *fleet.Node, err error) {
	at, place, ok := d.crew.FirstGrant(serveWithin)
	if !ok {
		d.rec.Unstable(from, history.Never)
		return 0, nil, fmt.Errorf("%w: no grant within %v of the fault", errStall, serveWithin)
	}
	d.rec.Unstable(from, at+calmAfter)
	return at - from, d.fleet.Nodes[place], nil
}

// ready waits until every node is a member again.
func (d *drill) ready() (took time.Duration, err error) {
	began := time.Now()
	if err := d.fleet.Ready(readyWithin); err != nil {
		return 0, fmt.Errorf("%w: %w", errStall, err)
	}
	return time.Since(began), nil
}

// log is what a node wrote last, for a report.
func (d *drill) log(n *fleet.Node) string { return filepath.Base(d.dir) + ": " + n.Log(2000) }
