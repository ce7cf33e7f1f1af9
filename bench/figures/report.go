package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// definition says what a figure is about and what is wanted of it.
type definition struct {
	load, figure string
	reference    string // what the reference is, if not the same on the ceiling
	goal         float64
	atLeast      bool // else at most
	absolute     bool // the goal is on the value itself, not on its ratio to the reference
	digits       int
}

var (
	rate16        = &definition{load: "64 connections × 16 in flight, acquire+release of own keys", figure: "replies/s", goal: 0.80, atLeast: true}
	rate48        = &definition{load: "64 × 48", figure: "replies/s", goal: 0.60, atLeast: true}
	cpu16         = &definition{load: "64 × 16", figure: "server CPU per reply, µs", goal: 1.6, digits: 3}
	acquire1      = &definition{load: "1 × 1", figure: "acquire p50, µs", goal: 1.6, digits: 1}
	handOver      = &definition{load: "one hot key, 64 waiters", figure: "release sent → next holder's `A` read, p50, µs", reference: "round trip of 1 × 1", goal: 2, digits: 1}
	ballastCPU    = &definition{load: "waiters and keys present, 64 × 16 on others", figure: "server CPU per reply, µs", reference: "with 64 waiters present", goal: 1.3, digits: 3}
	perWaiter     = &definition{load: "waiters", figure: "heap bytes per waiter, key included", goal: 150, absolute: true, digits: 1}
	perConnection = &definition{load: "idle connections", figure: "resident bytes per connection", goal: 16 << 10, absolute: true}
)

// row is what the runs have shown of one figure.
type row struct {
	*definition
	products, references, ratios []float64
}

// report collects the runs.
type report struct {
	paired bool // old against new: there are no goals
	rows   []*row
	voids  int // runs that were void and repeated
}

func newReport(paired bool) *report { return &report{paired: paired} }

// add takes one run's values. reference is not used for an absolute figure.
func (r *report) add(d *definition, product, reference float64) {
	i := slices.IndexFunc(r.rows, func(o *row) bool { return o.definition == d })
	if i < 0 {
		i = len(r.rows)
		r.rows = append(r.rows, &row{definition: d})
	}
	o := r.rows[i]
	o.products = append(o.products, product)
	if !d.absolute {
		o.references = append(o.references, reference)
		o.ratios = append(o.ratios, product/reference)
	}
}

// met says whether the median is within the goal.
func (o *row) met() bool {
	got := median(o.products)
	if !o.absolute {
		got = median(o.ratios)
	}
	if o.atLeast {
		return got >= o.goal
	}
	return got <= o.goal
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// spread is the median with the lowest and the highest value.
func spread(values []float64, digits int) string {
	if len(values) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.*f (%.*f–%.*f)", digits, median(values), digits, slices.Min(values), digits, slices.Max(values))
}

// markdown is the table.
func (r *report) markdown() string {
	var b strings.Builder
	if r.paired {
		b.WriteString("| load | figure | new | old | new ÷ old |\n| --- | --- | --- | --- | --- |\n")
	} else {
		b.WriteString("| load | figure | product | ceiling | ratio | goal | met |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	}
	for _, o := range r.rows {
		compared := spread(o.references, o.digits)
		if !r.paired && o.reference != "" {
			compared += " " + o.reference
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |", o.load, o.figure, spread(o.products, o.digits), compared, spread(o.ratios, 2))
		if !r.paired {
			sign, met := "≤", "yes"
			if o.atLeast {
				sign = "≥"
			}
			if !o.met() {
				met = "**no**"
			}
			fmt.Fprintf(&b, " %s %v | %s |", sign, o.goal, met)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "\nMedian (lowest–highest) of %d runs; a ratio is taken within its run. Void runs that were repeated: %d.\n", r.runs(), r.voids)
	return b.String()
}

func (r *report) runs() int {
	n := 0
	for _, o := range r.rows {
		n = max(n, len(o.products))
	}
	return n
}

// head says where and how the figures were taken.
func head(args []string, started time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- machine: %s, %d cores, %s/%s, %s\n", firstOf("/proc/cpuinfo", "model name"), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, kernel())
	fmt.Fprintf(&b, "- Go: %s\n- commit: %s\n- command: `%s`\n", runtime.Version(), commit(), strings.Join(append([]string{"figures"}, args[1:]...), " "))
	fmt.Fprintf(&b, "- taken: %s, in %s; server and load share the machine\n\n", started.UTC().Format(time.DateTime+" UTC"), time.Since(started).Round(time.Second))
	return b.String()
}

func firstOf(file, field string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == field {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

func kernel() string {
	out, err := exec.Command("uname", "-sr").Output()
	if err != nil {
		return "unknown kernel"
	}
	return string(bytes.TrimSpace(out))
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return string(bytes.TrimSpace(out))
}

// Marks in a document between which the table stands.
const (
	startMark = "<!-- figures: written by scripts/bench -->"
	endMark   = "<!-- end of figures -->"
)

var errNoMarks = errors.New("no marks for the figures")

// replaceFigures puts text between the marks of a document.
func replaceFigures(file, text string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(old), startMark)
	_, after, ok2 := strings.Cut(rest, endMark)
	if !ok || !ok2 {
		return fmt.Errorf("%s: %w", file, errNoMarks)
	}
	return os.WriteFile(file, []byte(before+startMark+"\n"+text+endMark+after), 0o644)
}
