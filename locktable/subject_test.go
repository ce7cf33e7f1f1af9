package locktable_test

import (
	"fmt"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

// subject is what the scripts, the histories and the world drive: the table itself, or the reference.
type subject interface {
	Begin(now time.Duration, by locktable.Proposer, terms locktable.StartTerms) proposal
	Leading() bool
	Acquire(now time.Duration, a *locktable.Acquire)
	Release(now time.Duration, r *locktable.Release)
	Leave(now time.Duration, s locktable.Session, answer bool)
	Undelivered(now time.Duration, s locktable.Session, first []byte, token locktable.Token)
	Tick(now time.Duration)
	Deadline() (time.Duration, bool)
	Propose(now time.Duration) (proposal, bool)
	Commit(now time.Duration, p proposal)
	Refuse(now time.Duration, by locktable.Proposer, seq uint64)
	Lose(now time.Duration)
	Stop(now time.Duration)
	Counts() locktable.Counts
	Check() error
}

// proposal is a record on its way. The table's travels as bytes, as through Raft; the reference's as it is.
type proposal struct {
	by      locktable.Proposer
	seq     uint64
	advance time.Duration
	bytes   []byte
	own     *locktable.Record // single mode: committed as it was proposed
	ref     *refRecord
}

func (p proposal) String() string {
	if p.seq == 0 {
		return "start"
	}
	s := fmt.Sprintf("record %d", p.seq)
	if p.advance != 0 {
		s += " advance=" + p.advance.String()
	}
	return s
}

// real is the table as a subject.
type real struct {
	*locktable.Table
	direct bool // commit records as they were proposed, without bytes between
}

func (t real) proposal(r *locktable.Record) proposal {
	p := proposal{by: r.By, seq: r.Seq, advance: r.Advance}
	if t.direct {
		p.own = r
	} else {
		p.bytes = locktable.AppendRecord(nil, r)
	}
	return p
}

func (t real) Begin(now time.Duration, by locktable.Proposer, terms locktable.StartTerms) proposal {
	return t.proposal(t.Table.Begin(now, by, terms))
}

func (t real) Propose(now time.Duration) (proposal, bool) {
	r := t.Table.Propose(now)
	if r == nil {
		return proposal{}, false
	}
	return t.proposal(r), true
}

func (t real) Commit(now time.Duration, p proposal) {
	if p.own != nil {
		t.Table.Commit(now, p.own)
		return
	}
	var r locktable.Record
	b := append([]byte(nil), p.bytes...)
	if err := locktable.DecodeRecord(b, &r); err != nil {
		panic(fmt.Sprintf("DecodeRecord of what AppendRecord wrote (%x): %v", p.bytes, err))
	}
	t.Table.Commit(now, &r)
	for i := range b { // what Commit kept of the borrowed bytes shows itself
		b[i] = 0xdb
	}
}

// settle runs single mode: every proposal commits at once.
func settle(t subject, now time.Duration) {
	for p, ok := t.Propose(now); ok; p, ok = t.Propose(now) {
		t.Commit(now, p)
	}
}

// keySet makes a set of keys that are given in ascending order.
func keySet(keys ...string) locktable.KeySet {
	var s locktable.KeySet
	for _, k := range keys {
		s = append(s, byte(len(k)))
		s = append(s, k...)
	}
	return s
}

// keysOf is keySet backwards.
func keysOf(s locktable.KeySet) []string {
	var keys []string
	for len(s) > 0 {
		n := 1 + int(s[0])
		keys = append(keys, string(s[1:n]))
		s = s[n:]
	}
	return keys
}

// session makes the name of a session.
func session(loop, slot, generation int) locktable.Session {
	return locktable.Session(uint64(loop)<<56 | uint64(slot)<<32 | uint64(generation))
}

var kinds = map[locktable.Kind]string{
	locktable.Granted: "granted", locktable.TimedOut: "timed out", locktable.Busy: "busy",
	locktable.Released: "released", locktable.NotHeld: "not held", locktable.Mismatched: "mismatched",
	locktable.LostQueued: "lost while queued", locktable.LostProposed: "lost while proposed",
	locktable.StopQueued: "stopped while queued", locktable.Left: "left",
}

// sinkFunc takes replies.
type sinkFunc func(r *locktable.Reply)

func (f sinkFunc) Reply(r *locktable.Reply) { f(r) }
