package history

import (
	"slices"
	"time"
)

// beforeAnswer is how long before its answer was read a grant may have taken effect: a change of leader may have begun
// as early.
const beforeAnswer = 100 * time.Millisecond

// Changes are the spans in which the service changed its leader, as the grants show: from the last grant of one process
// to the first of the next, and a little longer; and, where the same one was leader again, around every Busy, since a
// leader that loses its leadership answers its waiters so. The caller must know of no other cause for Busy. They are for
// Unstable, where changes come that nobody has caused; nothing that is about two holders looks at them.
func (h *History) Changes(calm time.Duration) []Window {
	var grants []*Op
	var busy []time.Duration
	for i := range h.Ops {
		switch op := &h.Ops[i]; op.Outcome {
		case Granted:
			grants = append(grants, op)
		case Busy:
			busy = append(busy, op.Return)
		}
	}
	slices.SortFunc(grants, func(a, b *Op) int { return int(a.Return - b.Return) })
	var out []Window
	for i := 1; i < len(grants); i++ {
		if grants[i].Node != grants[i-1].Node {
			out = append(out, Window{grants[i-1].Return - beforeAnswer, grants[i].Return + calm})
		}
	}
	for _, at := range busy {
		i, _ := slices.BinarySearchFunc(grants, at, func(g *Op, at time.Duration) int { return int(g.Return - at) })
		w := Window{0, Never}
		if i > 0 {
			w.From = grants[i-1].Return - beforeAnswer
		}
		if i < len(grants) {
			w.To = grants[i].Return + calm
		}
		out = append(out, w)
	}
	return sortedWindows(out)
}
