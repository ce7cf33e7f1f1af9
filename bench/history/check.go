package history

import (
	"fmt"
	"sort"
	"time"
)

// Limits are the bounds that a history is held to.
type Limits struct {
	// HandOver is how long after a release, or after the latest end of a lease, a queued waiter may still be without
	// its grant.
	HandOver time.Duration
	// Drift is the share of a lease by which it may end late: clocks differ.
	Drift float64
	// Change is by how much a lease may grow at a change of leader, besides the time without a leader (CLUSTER.md,
	// promise 3).
	Change time.Duration
	// Early is how long before the end of its wait a TimedOut is due, and Timely how much later it may come.
	Early, Timely time.Duration
	// NoticeDead is how long a server may take to see that a session has ended.
	NoticeDead time.Duration
	// Search bounds the search of the linearizability check.
	Search time.Duration
}

// DefaultLimits are those of PROTOCOL.md and CLUSTER.md, and one minute of search.
func DefaultLimits() Limits {
	return Limits{HandOver: 100 * time.Millisecond, Drift: 0.001, Change: time.Second, Early: 100 * time.Millisecond,
		Timely: 150 * time.Millisecond, NoticeDead: time.Second, Search: time.Minute}
}

// Rule names what a violation breaks.
type Rule string

const (
	Linearizable  Rule = "no order of the operations explains the answers"
	Undecided     Rule = "the search for an order did not end in its time"
	DoubleHolder  Rule = "two holders at once"
	TokenReused   Rule = "token issued twice"
	TokenFell     Rule = "token not above an earlier one"
	StaleReleased Rule = "release of a token that was not held answered R"
	HoldLost      Rule = "token not held within its lease and without a release"
	OutOfOrder    Rule = "waiter overtaken"
	Idle          Rule = "key idle with a waiter queued"
	LateExpiry    Rule = "lease ended late"
	Causeless     Rule = "refused though nobody could hold the key"
	TooEarly      Rule = "timed out before it was due"
	TooLate       Rule = "timed out late"
	Overdue       Rule = "no answer on a live session"
	Stray         Rule = "reply that answers nothing"
)

// Violation is one broken rule, with the operations that show it.
type Violation struct {
	Rule   Rule
	Detail string
}

func (v Violation) String() string { return string(v.Rule) + ": " + v.Detail }

// maxViolations bounds a report: after a fault of the service the rest only repeats it.
const maxViolations = 100

// Report is what a check has found.
type Report struct {
	Violations []Violation
	Ops        int
	Outcomes   [Unanswered + 1]int // operations by outcome
	Keys       int
	Pairs      int    // grants of acquires that came behind one that was known to be queued and still waited
	LastToken  uint64 // greatest token granted, or History.Above
	Took       time.Duration
}

// OK says that nothing was found.
func (r *Report) OK() bool { return len(r.Violations) == 0 }

// Has says that a rule was broken.
func (r *Report) Has(rule Rule) bool {
	for _, v := range r.Violations {
		if v.Rule == rule {
			return true
		}
	}
	return false
}

func (r *Report) add(rule Rule, format string, args ...any) {
	if len(r.Violations) < maxViolations {
		r.Violations = append(r.Violations, Violation{rule, fmt.Sprintf(format, args...)})
	}
}

// Check runs every check on a history. h is not changed and may be checked again.
func Check(h *History, l Limits) *Report {
	start := time.Now()
	r := &Report{Ops: len(h.Ops), LastToken: h.Above}
	for i := range h.Ops {
		op := &h.Ops[i]
		r.Outcomes[op.Outcome]++
		if op.Kind == Acquire && op.Outcome == Granted {
			r.LastToken = max(r.LastToken, op.Token)
		}
	}
	for _, s := range h.Strays {
		r.add(Stray, "%s", s)
	}
	keys := byKey(h.Ops)
	r.Keys = len(keys)
	checkTokens(r, h)
	c := newClock(h, l)
	for _, k := range keys {
		checkHolds(r, k)
		checkReleases(r, k)
		checkOrder(r, k, l)
		checkAnswers(r, k, c)
		checkIdle(r, k, c)
		checkRefusals(r, k, c)
	}
	checkLinearizable(r, keys, l.Search)
	r.Took = time.Since(start)
	return r
}

// keyed is the part of a history that concerns one key.
type keyed struct {
	key      string
	ops      []*Op            // all, by Call
	grants   []*Op            // by Token, then Call
	releases map[uint64][]*Op // by token
	mayEnd   map[uint64]*Op   // by token: the release that was answered R, else the first that may have taken effect
}

// byKey splits operations by key, in order of first use.
func byKey(ops []Op) []*keyed {
	index := map[string]*keyed{}
	var keys []*keyed
	for i := range ops {
		op := &ops[i]
		k := index[op.Key]
		if k == nil {
			k = &keyed{key: op.Key, releases: map[uint64][]*Op{}, mayEnd: map[uint64]*Op{}}
			index[op.Key] = k
			keys = append(keys, k)
		}
		k.ops = append(k.ops, op)
	}
	for _, k := range keys {
		k.arrange()
	}
	return keys
}

func (k *keyed) arrange() {
	sort.SliceStable(k.ops, func(i, j int) bool { return k.ops[i].Call < k.ops[j].Call })
	for _, op := range k.ops {
		switch {
		case op.Kind == Acquire && op.Outcome == Granted:
			k.grants = append(k.grants, op)
		case op.Kind == Release:
			k.releases[op.Token] = append(k.releases[op.Token], op)
			if e := k.mayEnd[op.Token]; op.mayRelease() && (e == nil || op.Outcome == Released && e.Outcome != Released) {
				k.mayEnd[op.Token] = op // ops are by Call: the first is the earliest
			}
		}
	}
	sort.SliceStable(k.grants, func(i, j int) bool { return k.grants[i].Token < k.grants[j].Token })
}

// after is the index of the first grant whose token is above t.
func (k *keyed) after(t uint64) int {
	return sort.Search(len(k.grants), func(i int) bool { return k.grants[i].Token > t })
}
