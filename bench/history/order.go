package history

import (
	"sort"
	"time"
)

// checkOrder finds waiters that were overtaken. An acquire is known to be queued once something sent behind it on its
// session has been answered (Op.Queued); what is called after that comes behind it.
//
// If both were granted, the tokens tell the order in which, and this holds whoever leads: a change of leader starts new
// queues, so an acquire that is granted was queued under one leader all the time, and every grant of the key in that
// time was that leader's. If the first one timed out instead, the second must not have been granted by the same process
// before the first one's TimedOut was due; another process may have, since a leader that does not know that it has been
// deposed still answers T.
func checkOrder(r *Report, k *keyed, l Limits) {
	var queued []*Op
	for _, op := range k.ops {
		if op.Kind == Acquire && op.Queued > 0 && (op.Outcome == Granted || op.Outcome == TimedOut && op.Wait > 0) {
			queued = append(queued, op)
		}
	}
	sort.SliceStable(queued, func(i, j int) bool { return queued[i].Queued < queued[j].Queued })
	var last *Op               // granted, of those queued so far: the one of the greatest token
	waiting := map[int32]*Op{} // timed out, of those queued so far, by node: the one that was due last
	due := func(op *Op) time.Duration { return op.Call + op.Wait - l.Early }
	next := 0
	for _, op := range k.ops {
		if op.Kind != Acquire || op.Outcome != Granted {
			continue
		}
		for ; next < len(queued) && queued[next].Queued <= op.Call; next++ {
			q := queued[next]
			switch {
			case q.Outcome == Granted && (last == nil || q.Token > last.Token):
				last = q
			case q.Outcome == TimedOut && (waiting[q.Node] == nil || due(q) > due(waiting[q.Node])):
				waiting[q.Node] = q
			}
		}
		if last != nil && last.Return > op.Call {
			r.Pairs++
		}
		if last != nil && op.Token < last.Token {
			r.add(OutOfOrder, "%v was queued at %v, yet %v came first", last, last.Queued, op)
		}
		if w := waiting[op.Node]; w != nil && op.Return < due(w) {
			r.add(OutOfOrder, "%v was queued at %v, yet %v was granted meanwhile", w, w.Queued, op)
		}
	}
}
