// Package locktable decides who holds which key, who waits for it and in which order, which token is issued next, and
// what is due when. It is the whole of PROTOCOL.md section 3 and of the key sets of WIRES.md section 2.
//
// It knows no sockets, no goroutines, no clocks and no Raft: time is an argument, sessions are numbers, and what must be
// agreed on leaves as a record and comes back committed. One goroutine, the server's apply goroutine, calls it.
//
// # Two parts
//
// The replicated part (replicated.go) is what records change: per key the grant that holds it, the token counter, the
// lease clock, and whose stint it is. Commit applies a record to it and nothing else does; equal records in equal order
// give equal parts on every node, byte for byte (Snapshot).
//
// The leader-only part (stint.go) is what a serving node has besides: queues, deadlines, and an overlay of what has been
// decided and has not committed yet. It exists for one stint of leadership and is forgotten with it.
//
//	Acquire ─┐                 ┌─ Propose ──▶ record ──▶ (Raft, or at once) ──▶ Commit ─┐
//	Release ─┼─▶ decide ──▶ batch                                                       ├─▶ replies to the Sink
//	Tick ────┘    ▲            └────────────────────◀── Refuse: decide again ───────────┘
//	              └ overlay: keys reserved, tokens ending
//
// A command reads both parts, answers what rests on nothing in flight, and puts an entry into the batch for the rest.
// Propose takes the batch as a record. When the record commits, its entries are done or not done, each by its own
// precondition, and the answers follow; when it is refused, everything that hung on it is decided again, in the order of
// its arrival. A node alone commits each record at once, a cluster by Raft: the same code decides in both.
//
// # Queues
//
// A waiter stands in the queue of each of its keys, at the place of its arrival, and is granted when it is at the head of
// all of them and all the keys are free. Arrival order is the same in all queues, so the oldest waiter of all waits for
// holders only: nothing can deadlock or starve. Two waiters that could both be granted share no key (one would stand
// behind the other), so a step that frees keys grants them all at once, in order of arrival.
package locktable
