package raftglue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// register is a Machine that keeps all records it was given, in order.
type register struct {
	mu      sync.Mutex
	records []string
	roles   []Role
	role    Role
	waiting map[string]chan struct{} // closed when the record is applied
}

func newRegister() *register { return &register{waiting: map[string]chan struct{}{}} }

func (r *register) Apply(records [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range records {
		r.records = append(r.records, string(b))
		if ch := r.waiting[string(b)]; ch != nil {
			close(ch)
			delete(r.waiting, string(b))
		}
	}
}

func (r *register) Snapshot() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, _ := json.Marshal(r.records)
	return b
}

func (r *register) Restore(b []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = nil
	return json.Unmarshal(b, &r.records)
}

func (r *register) Role(role Role) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.role = role
	r.roles = append(r.roles, role)
}

func (r *register) now() Role {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.role
}

func (r *register) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.records)
}

// process is one life of a member.
type process struct {
	*Node
	reg  *register
	host *memHost
}

// world is a cluster in one process, over a network in memory.
type world struct {
	t       *testing.T
	net     *memNet
	members []string
	procs   []*process
	edit    func(slot int, c *Config)
	next    int
	acked   []string
	refused []string
}

const testElection = 200 * time.Millisecond

func newWorld(t *testing.T, size int) *world {
	w := &world{t: t, net: newMemNet(), procs: make([]*process, size)}
	for i := range size {
		w.members = append(w.members, fmt.Sprintf("10.0.0.%d:5225", i))
	}
	return w
}

func hostOf(slot int) string { return fmt.Sprintf("10.0.0.%d", slot) }

func testLog(name string) *slog.Logger {
	if os.Getenv("RAFTGLUE_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", name)
}

func (w *world) config(slot int, client string) (Config, *memHost, *register) {
	host, _, _ := net.SplitHostPort(client)
	peer, _ := PeerAddress(client, 1000)
	h, reg := w.net.host(host), newRegister()
	c := Config{
		Self: client, Members: w.members, PeerBind: peer, PeerPortOffset: 1000, PeerToken: []byte("the peers' token"),
		Election: testElection, Form: "explicit", NodeName: host, Addresses: "v1=" + client, MaxLease: 250 * time.Second,
		Log: testLog(host), Machine: reg, net: h,
	}
	if w.edit != nil {
		w.edit(slot, &c)
	}
	return c, h, reg
}

func (w *world) start(slot int) *process {
	w.t.Helper()
	c, h, reg := w.config(slot, w.members[slot])
	n, err := Start(c)
	if err != nil {
		w.t.Fatalf("starting slot %d: %v", slot, err)
	}
	w.procs[slot] = &process{n, reg, h}
	return w.procs[slot]
}

func (w *world) startAll() {
	for slot := range w.procs {
		w.start(slot)
	}
}

// kill ends a process as SIGKILL does: its peers see their connections reset, and nothing is said any more.
func (w *world) kill(slot int) {
	w.t.Helper()
	p := w.procs[slot]
	w.procs[slot] = nil
	p.kill(w.t)
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	p.host.crash()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Fatalf("stopping: %v", err)
	}
}

func (w *world) stopAll() {
	w.net.healAll()
	for slot, p := range w.procs {
		if p != nil {
			w.kill(slot)
		}
	}
}

func (w *world) form() {
	w.t.Helper()
	if _, err := w.procs[0].form(0, nil); err != nil {
		w.t.Fatalf("init: %v", err)
	}
}

func (w *world) within(d time.Duration, what string, ok func() bool) {
	w.t.Helper()
	end := time.Now().Add(d)
	for !ok() {
		if time.Now().After(end) {
			w.t.Fatalf("after %v still not: %s\n%s", d, what, w.describe())
		}
		wait(5 * time.Millisecond)
	}
}

// wait lets time pass between two looks at a condition.
func wait(d time.Duration) { <-time.After(d) }

func (w *world) describe() string {
	var b bytes.Buffer
	for slot, p := range w.procs {
		if p == nil {
			fmt.Fprintf(&b, "slot %d: dead\n", slot)
			continue
		}
		s := p.Status()
		fmt.Fprintf(&b, "slot %d: %s, ready %v %q, term %d, leader %d, applied %d, pending %v\n%s", slot, s.Role, s.Ready,
			s.Reason, s.Term, s.LeaderSlot, s.AppliedIndex, s.ChangePending, s.String())
	}
	return b.String()
}

func (w *world) leader() *process {
	for _, p := range w.procs {
		if p != nil && p.reg.now().Leading {
			return p
		}
	}
	return nil
}

func (w *world) ready(slot int) bool {
	p := w.procs[slot]
	if p == nil {
		return false
	}
	ok, _ := p.Ready()
	return ok
}

func (w *world) allReady() bool {
	for slot := range w.procs {
		if !w.ready(slot) {
			return false
		}
	}
	return true
}

var errRefused = errors.New("refused")
var errUnknown = errors.New("unknown")

// propose commits one record through a node; the error says whether it was refused or nobody knows.
func (p *process) propose(rec string, d time.Duration) error {
	done, no := make(chan struct{}), make(chan struct{})
	p.reg.mu.Lock()
	p.reg.waiting[rec] = done
	p.reg.mu.Unlock()
	p.Propose([]byte(rec), func() { close(no) })
	select {
	case <-done:
		return nil
	case <-no:
		return errRefused
	case <-time.After(d):
		return errUnknown
	}
}

// commit proposes records at whoever leads until one is applied there, and remembers what was promised about each.
func (w *world) commit(d time.Duration) bool {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); wait(5 * time.Millisecond) {
		l := w.leader()
		if l == nil {
			continue
		}
		w.next++
		rec := fmt.Sprintf("record %d", w.next)
		switch l.propose(rec, 2*testElection) {
		case nil:
			w.acked = append(w.acked, rec)
			return true
		case errRefused:
			w.refused = append(w.refused, rec)
		}
	}
	return false
}

func (w *world) mustCommit(d time.Duration) {
	w.t.Helper()
	if !w.commit(d) {
		w.t.Fatalf("nothing was committed in %v\n%s", d, w.describe())
	}
}

// check compares the registers: each a prefix of the longest, all acknowledged records there in order, no refused one.
func (w *world) check() {
	w.t.Helper()
	var longest []string
	for _, p := range w.procs {
		if p != nil {
			if r := p.reg.all(); len(r) > len(longest) {
				longest = r
			}
		}
	}
	for slot, p := range w.procs {
		if p == nil {
			continue
		}
		if r := p.reg.all(); !slices.Equal(r, longest[:len(r)]) {
			w.t.Fatalf("slot %d has applied %q, another %q", slot, r, longest)
		}
	}
	at := 0
	for _, rec := range w.acked {
		i := slices.Index(longest[at:], rec)
		if i < 0 {
			w.t.Fatalf("%q was acknowledged and is lost; applied: %q", rec, longest)
		}
		at += i + 1
	}
	for _, rec := range w.refused {
		if slices.Contains(longest, rec) {
			w.t.Fatalf("%q was refused and is applied", rec)
		}
	}
}
