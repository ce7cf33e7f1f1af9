package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ticketing-go/ticketing/bench/history"
)

// result is what all chapters together have shown.
type result struct {
	ops        int
	outcomes   [history.Unanswered + 1]int
	pairs      int
	violations int
	rules      map[history.Rule]int
	checking   time.Duration
	outages    []time.Duration // fault to first grant on a key with nothing in flight
	hot        []time.Duration // fault to the first grant on the hot key
	heals      []time.Duration // heal to first grant
	rejoins    []time.Duration // start to all ready
	done       int             // faults made
	slowest    time.Duration   // longest time in which the whole service gave no answer, or the drill did not run, though the leader stayed
	unasked    int             // changes of leader in drills whose leader is to stay
	notes      []string
	failures   []string
}

func (r *result) add(d *drill, h *history.History, report *history.Report, stopped time.Duration) {
	r.ops += report.Ops
	r.pairs += report.Pairs
	r.checking += report.Took
	for i, n := range report.Outcomes {
		r.outcomes[i] += n
	}
	if r.rules == nil {
		r.rules = map[history.Rule]int{}
	}
	r.violations += len(report.Violations)
	for _, v := range report.Violations {
		r.rules[v.Rule]++
	}
	for _, k := range d.kills {
		if at := firstOn(h, d.hotKey(), k); at > 0 {
			r.hot = append(r.hot, at)
		} else {
			r.notes = append(r.notes, fmt.Sprintf("the hot key was not granted within %v of a kill", hotWithin))
		}
	}
	for _, w := range h.Stalls {
		if !slices.ContainsFunc(h.Unstable, func(u history.Window) bool { return u.From <= w.To && w.From <= u.To }) {
			r.slowest = max(r.slowest, w.To-w.From)
		}
	}
	if d.steady {
		r.unasked += len(h.Changes(calmAfter))
		r.failures = append(r.failures, errorsAtLeader(h, stopped)...)
	}
}

// overloaded is the number of processes that want a core, for each core, from which a change of leader says nothing: a
// leader that does not run for its lease of half an election timeout has lost it.
const overloaded = 2

// loadAverage is that of the last minute; 0 where it is not told.
func loadAverage() float64 {
	var load float64
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Sscan(string(text), &load)
	}
	return load
}

// changesUnasked judges the changes of leader in a drill whose leader was to stay.
func (r *result) changesUnasked() {
	if r.unasked == 0 {
		return
	}
	what := fmt.Sprintf("the leader changed %d times, and nothing was done to it", r.unasked)
	if load := loadAverage(); load > overloaded*float64(runtime.NumCPU()) {
		r.notes = append(r.notes, fmt.Sprintf("%s: excused, load %.1f on %d cores", what, load, runtime.NumCPU()))
		return
	}
	r.failures = append(r.failures, what)
}

// firstOn is how long after a kill a key was first granted by another process; 0: not at all.
func firstOn(h *history.History, key string, k kill) time.Duration {
	first := history.Never
	for i := range h.Ops {
		op := &h.Ops[i]
		if op.Key == key && op.Outcome == history.Granted && op.Return > k.at && op.Node != k.node {
			first = min(first, op.Return)
		}
	}
	if first == history.Never {
		return 0
	}
	return first - k.at
}

// errorsAtLeader lists what clients of a leader must not see while it stays: anything but an answer to the request.
func errorsAtLeader(h *history.History, stopped time.Duration) []string {
	var grants []*history.Op
	for i := range h.Ops {
		if h.Ops[i].Outcome == history.Granted {
			grants = append(grants, &h.Ops[i])
		}
	}
	slices.SortFunc(grants, func(a, b *history.Op) int { return int(a.Return - b.Return) })
	leads := func(op *history.Op) bool { // when the request was made
		i, _ := slices.BinarySearchFunc(grants, op.Call, func(g *history.Op, at time.Duration) int { return int(g.Return - at) })
		return i > 0 && grants[i-1].Node == op.Node
	}
	var out []string
	changes := h.Changes(calmAfter)
	changing := func(op *history.Op) bool {
		end := op.Return
		if end == history.Never {
			end = op.Gone
		}
		return slices.ContainsFunc(changes, func(w history.Window) bool { return w.From <= end && op.Call <= w.To })
	}
	for i := range h.Ops {
		op := &h.Ops[i]
		bad := op.Outcome == history.Busy || op.Outcome == history.Refused ||
			(op.Outcome == history.Unknown || op.Outcome == history.Unanswered) && op.Gone < stopped
		if bad && len(out) < 5 && leads(op) && !changing(op) {
			out = append(out, "client error at the leader, though it stayed: "+op.String())
		}
	}
	return out
}

// spread is a line of quantiles.
func spread(what string, ds []time.Duration) string {
	if len(ds) == 0 {
		return ""
	}
	ds = slices.Clone(ds)
	slices.Sort(ds)
	at := func(q float64) time.Duration {
		return ds[min(len(ds)-1, int(q*float64(len(ds))))].Round(time.Millisecond)
	}
	return fmt.Sprintf("%s: n=%d p50=%v p90=%v p99=%v max=%v\n", what, len(ds), at(0.5), at(0.9), at(0.99), at(1))
}

// goal is a bound on quantiles of an outage.
type goal struct{ p50, p99 time.Duration }

// goals are those of the issue; what is not listed has none.
var goals = map[string]goal{
	"kill-leader": {500 * time.Millisecond, time.Second},
	"pause":       {0, time.Second},
}

func (g goal) missed(ds []time.Duration) bool {
	if len(ds) == 0 {
		return false
	}
	ds = slices.Clone(ds)
	slices.Sort(ds)
	at := func(q float64) time.Duration { return ds[min(len(ds)-1, int(q*float64(len(ds))))] }
	return g.p50 > 0 && at(0.5) > g.p50 || g.p99 > 0 && at(0.99) > g.p99
}

// verdict prints the outcome of the drill and says whether it passed.
func (d *drill) verdict() bool {
	r := &d.result
	r.changesUnasked()
	var b strings.Builder
	b.WriteString(spread("outage, first grant on a new key", r.outages))
	b.WriteString(spread("outage, first grant on the hot key", r.hot))
	b.WriteString(spread("after the heal, first grant", r.heals))
	b.WriteString(spread("start to all ready", r.rejoins))
	for _, n := range r.notes {
		fmt.Fprintf(&b, "%s\n", n)
	}
	if r.slowest > 0 {
		fmt.Fprintf(&b, "longest silence of service or drill with a leader: %v\n", r.slowest.Round(time.Millisecond))
	}
	fmt.Fprintf(&b, "history: %d operations", r.ops)
	for o, n := range r.outcomes {
		if n > 0 {
			fmt.Fprintf(&b, ", %d %v", n, history.Outcome(o))
		}
	}
	fmt.Fprintf(&b, "; %d ordered pairs; checked in %v; %d violations\n", r.pairs, r.checking.Round(time.Millisecond), r.violations)
	rules := make([]string, 0, len(r.rules))
	for rule, n := range r.rules { // order does not matter: sorted below
		rules = append(rules, fmt.Sprintf("  %d × %s\n", n, rule))
	}
	slices.Sort(rules)
	b.WriteString(strings.Join(rules, ""))
	for _, f := range r.failures {
		fmt.Fprintf(&b, "FAILURE: %s\n", f)
	}
	missed := goals[d.name].missed(r.outages) && !d.lossy
	if missed {
		fmt.Fprintf(&b, "GOAL MISSED: p50 %v, p99 %v; load %.1f on %d cores\n", goals[d.name].p50, goals[d.name].p99,
			loadAverage(), runtime.NumCPU())
	}
	ok := r.violations == 0 && len(r.failures) == 0 && !(missed && d.strict)
	what := "passed"
	switch {
	case d.expectCaught && r.violations > 0:
		ok, what = true, "passed: the planted fault was caught"
	case d.expectCaught:
		ok, what = false, "FAILED: the planted fault was not caught"
	case !ok:
		what = "FAILED"
	}
	fmt.Fprintf(&b, "verdict: drill %s, %d of %d, seed %d, %v: %s\n", d.name, d.result.done, d.count, d.seed,
		time.Since(d.began).Round(time.Second), what)
	fmt.Fprint(d.out, b.String())
	return ok
}
