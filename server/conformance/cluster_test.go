package conformance

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fleet is a cluster of three on loopback that forms itself, in memory. Its members are processes of their own: they are
// killed and stopped.
type fleet struct {
	t        testing.TB
	nodes    []*child
	environs [][]string
}

const peerOffset = 1

// formLimit is how long a fleet may take to form or to elect on a machine that has other work.
const formLimit = 60 * time.Second

func newFleet(t testing.TB, given ...string) *fleet {
	t.Helper()
	f := &fleet{t: t}
	var members []string
	for range 3 {
		members = append(members, fmt.Sprintf("127.0.0.1:%d", freePort(t, peerOffset)))
	}
	for _, m := range members {
		in, environ := environment(t, append([]string{
			"BIND=" + m, "CLUSTER=" + strings.Join(members, ","), "FORM=auto", "GRACE=0", "CLIENT_TOKENS=" + goodToken,
			"ELECTION_MS=1000", // a machine that has other work must not end leaderships
			fmt.Sprintf("PEER_PORT_OFFSET=%d", peerOffset), "PEER_TOKEN=peer-token-0123456789",
		}, given...))
		f.nodes = append(f.nodes, &child{instance: in})
		f.environs = append(f.environs, environ)
	}
	return f
}

func (f *fleet) begin(i int) {
	f.t.Helper()
	f.nodes[i].begin(f.t, f.environs[i])
}

// form starts all members and waits until they are ready.
func (f *fleet) form() {
	f.t.Helper()
	for i, n := range f.nodes {
		if n.cmd == nil {
			f.begin(i)
		}
	}
	for i, n := range f.nodes {
		n.ready(f.t, formLimit)
		f.nodes[i].fingerprint = f.status(i).fingerprint
	}
}

type nodeStatus struct {
	role        string
	leader      int
	fingerprint [32]byte
}

func (f *fleet) status(i int) (s nodeStatus) {
	f.t.Helper()
	var page struct {
		Fingerprint string `json:"identity_fingerprint"`
		Cluster     struct {
			Role   string `json:"role"`
			Leader int    `json:"leader_slot"`
		} `json:"cluster"`
	}
	_, body := f.nodes[i].page("/status")
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		return nodeStatus{leader: -1}
	}
	if b, err := hex.DecodeString(page.Fingerprint); err == nil {
		copy(s.fingerprint[:], b)
	}
	s.role, s.leader = page.Cluster.Role, page.Cluster.Leader
	return s
}

// leader waits until one of these nodes serves, and the others know it.
func (f *fleet) leader(nodes ...int) int {
	f.t.Helper()
	found := -1
	eventually(f.t, formLimit, "a leader that all know", func() bool {
		found = f.status(nodes[0]).leader
		for _, i := range nodes {
			s := f.status(i)
			if s.leader != found || found < 0 || (s.role == "leader") != (i == found) {
				return false
			}
		}
		code, _ := f.nodes[found].page("/readyz")
		return code == 200
	})
	return found
}

// moved is M, and notice L, as a wire tells of a leader.
func (f *fleet) moved(wire string, id uint64, leader int) []byte {
	if wire == "3" {
		return frame3('M', u64(id), []byte{byte(leader)})
	}
	return textFrame('M', []byte(f.nodes[leader].addr[wire]))
}

func (f *fleet) notice(wire string, leader int) []byte {
	if wire == "3" {
		return frame3('L', []byte{byte(leader)})
	}
	return textFrame('L', []byte(f.nodes[leader].addr[wire]))
}

// PROTOCOL.md section 6: a node of a cluster that is not formed, followers, and a leader that stops in order.
func TestFollowersAndHandOver(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.begin(0)
	unformed(t, f.nodes[0])
	f.form()
	leader := f.leader(0, 1, 2)
	follower, third := (leader+1)%3, (leader+2)%3

	hints, held := map[string]*client{}, map[string]uint64{}
	for _, w := range wires {
		c := f.nodes[follower].dial(t, w)
		hints[w] = c
		if w != "0.1" { // which knows no L
			c.want(f.notice(w, leader))
		}
		for id := range uint64(2) { // the connection stays open
			c.send(c.wire.AppendAcquire(nil, 5+id, 1, 9, []byte("k")))
			c.want(f.moved(w, 5+id, leader))
			c.send(c.wire.AppendRelease(nil, 7+id, 99, []byte("k")))
			c.want(f.moved(w, 7+id, leader))
		}
		if w == "3" && (c.hello.Mode != 1 || int(c.hello.Slot) != follower) {
			t.Errorf("hello of slot %d: mode %d, slot %d", follower, c.hello.Mode, c.hello.Slot)
		}
		l := f.nodes[leader].dial(t, w) // no L there
		held[w] = l.grant(1, 10, 60, "held"+w)
	}
	waiter := f.nodes[leader].dial(t, "v1")
	waiter.send(waiter.wire.AppendAcquire(nil, 9, 60, 9, []byte("held3")))
	waiter.grant(10, 1, 60, "sync")
	begin := time.Now()
	f.nodes[leader].signal(t, syscall.SIGTERM)
	waiter.want(refused("v1", 'B', 9, "held3"))
	last := waiter.next()
	for len(last.raw) > 0 && last.raw[0] == 'L' { // who leads now may be known before the node says goodbye
		last = waiter.next()
	}
	waiter.check(last, []byte("Enot_active\n"))
	waiter.wantEnd()
	if code := f.nodes[leader].exits(t, 5*time.Second+slack(begin)); code != 0 {
		t.Errorf("the leader's exit code is %d, want 0: %s", code, f.nodes[leader].log.String())
	}

	old := leader
	leader = f.leader(follower, third)
	for _, w := range wires {
		if w != "0.1" && leader != follower {
			e := hints[w].next()
			for w == "3" && string(e.raw) == string(frame3('L', []byte{255})) { // for a moment none was known
				e = hints[w].next()
			}
			hints[w].check(e, f.notice(w, leader))
		}
		c := f.nodes[leader].dial(t, w)
		if w == "0.1" {
			// All granting connections count as ended after a change of leader.
			c.release(2, 0, "held"+w)
		} else {
			c.release(2, held[w], "held"+w)
		}
		if got := c.grant(3, 1, 9, "held"+w); got <= held[w] {
			t.Errorf("wire %s: token %d after %d", w, got, held[w])
		}
	}
	if f.status(follower).leader == old {
		t.Errorf("the old leader %d still leads", old)
	}
}

// unformed checks a node whose cluster is not formed.
func unformed(t *testing.T, n *child) {
	t.Helper()
	if code, _ := n.page("/readyz"); code != 503 {
		t.Errorf("/readyz of a node without a cluster: %d, want 503", code)
	}
	for _, w := range textWires {
		c := n.dial(t, w)
		for range 2 {
			c.send(c.wire.AppendAcquire(nil, 1, 1, 9, []byte("k")))
			c.want([]byte("Enot_active\n"))
			c.send(c.wire.AppendRelease(nil, 1, 1, []byte("k")))
			c.want([]byte("Enot_active\n"))
		}
	}
	if b, err := io.ReadAll(n.connect(t, "3")); len(b) > 0 || err != nil {
		t.Errorf("wire 3: got %q (%v), want the end without a byte", b, err)
	}
}

// A leader killed by SIGKILL: what was granted is held by the same token, an acquire of wire 0.3 finds its own grant, a
// lease counted from the send is not cut short and ends all the same, and tokens go on above.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.form()
	leader := f.leader(0, 1, 2)
	n := f.nodes[leader]
	v1, old := n.dial(t, "v1"), n.dial(t, "0.3")
	own := old.grant(7, 10, 60, "own")
	kept := v1.grant(8, 10, 60, "kept")
	begin := time.Now()
	short := v1.grant(9, 10, 4, "short")
	waiting := n.dial(t, "0.3")
	waiting.send(waiting.wire.AppendAcquire(nil, 11, 60, 9, []byte("own")))
	waiting.grant(12, 10, 60, "sync")
	n.signal(t, syscall.SIGKILL)
	<-n.done

	rest := []int{(leader + 1) % 3, (leader + 2) % 3}
	next := f.leader(rest...)
	c := f.nodes[next].dial(t, "0.3")
	c.send(c.wire.AppendAcquire(nil, 7, 10, 60, []byte("own")))
	c.want(granted("0.3", 'A', 7, own, "own"))
	d := f.nodes[next].dial(t, "v1")
	d.send(d.wire.AppendAcquire(nil, 20, 0, 9, []byte("kept")))
	d.want(refused("v1", 'T', 20, "kept"))
	d.send(d.wire.AppendAcquire(nil, 21, 60, 9, []byte("short")))
	e := d.next()
	d.check(e, granted("v1", 'A', 21, e.token, "short"))
	if took := e.at.Sub(begin); took < 4*time.Second || e.token <= max(own, kept, short) {
		t.Errorf("the short lease ended after %v with token %d; want 4 s at least, and a token above %d", took, e.token, max(own, kept, short))
	}
	c.send(c.wire.AppendAcquire(nil, 11, 60, 9, []byte("own"))) // its place died with the leader
	d.release(22, own, "own")
	e = c.next()
	c.check(e, granted("0.3", 'A', 11, e.token, "own"))
	d.release(23, kept, "kept")
}

// A leader that is cut off: what was queued has definitely not been acquired, what was proposed is Indeterminate, the rest
// stays and hears of the next leader.
func TestLossOfLeadership(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.form()
	leader := f.leader(0, 1, 2)
	n := f.nodes[leader]
	queued, proposed, idle := map[string]*client{}, map[string]*client{}, map[string]*client{}
	for _, w := range wires {
		queued[w], proposed[w], idle[w] = n.dial(t, w), n.dial(t, w), n.dial(t, w)
		idle[w].grant(1, 10, 60, "k"+w)
		proposed[w].grant(2, 10, 60, "p"+w)
		queued[w].send(queued[w].wire.AppendAcquire(nil, 3, 60, 9, []byte("k"+w)))
	}
	eventually(t, answerLimit, "four waiters", func() bool { return n.metric(t, "ticketing_waiters") == 4 })
	for i, other := range f.nodes {
		if i != leader {
			other.halt(t)
		}
	}
	for _, w := range wires {
		proposed[w].send(proposed[w].wire.AppendAcquire(nil, 4, 10, 9, []byte("new"+w)))
	}
	for _, w := range wires {
		lost(t, w, queued[w], proposed[w])
	}
	for i, other := range f.nodes {
		if i != leader {
			other.signal(t, syscall.SIGCONT)
		}
	}
	next := f.leader(0, 1, 2)
	for _, w := range wires {
		c := idle[w]
		if w != "0.1" && next != leader {
			e := c.next()
			for string(e.raw) != string(f.notice(w, next)) { // others may have led for a moment
				if e.err != nil || e.raw[0] != 'L' {
					t.Fatalf("wire %s: got %q (%v), want L", w, e.raw, e.err)
				}
				e = c.next()
			}
		}
		if next != leader {
			c.send(c.wire.AppendAcquire(nil, 5, 1, 9, []byte("k"+w)))
			e := c.next()
			for e.err == nil && e.raw[0] == 'L' {
				e = c.next()
			}
			c.check(e, f.moved(w, 5, next))
		}
		// What the dead stint had granted is held: no acquire but a new one of the same key gets past it.
		d := f.nodes[next].dial(t, "v1")
		d.send(d.wire.AppendAcquire(nil, 6, 0, 9, []byte("k"+w)))
		d.want(refused("v1", 'T', 6, "k"+w))
	}
}

// halt stops the process by SIGSTOP, and waits until it stands still: it might commit something until then.
func (c *child) halt(t testing.TB) {
	t.Helper()
	c.signal(t, syscall.SIGSTOP)
	eventually(t, answerLimit, "the process stands still", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		if os.IsNotExist(err) {
			return true // no /proc here: it has to be believed
		}
		_, state, _ := strings.Cut(string(b), ") ")
		return strings.HasPrefix(state, "T")
	})
}

// lost checks what a queued and a proposed acquire get from a leader that leads no more.
func lost(t *testing.T, w string, queued, proposed *client) {
	t.Helper()
	q, p := queued.next(), proposed.next()
	noLeader := "Eno_leader\n"
	switch w {
	case "v1":
		queued.check(q, refused(w, 'B', 3, "k"+w))
		queued.quiet(50 * time.Millisecond) // it stays
		proposed.check(p, []byte(noLeader))
		proposed.wantEnd()
	case "3":
		for string(q.raw) == string(frame3('L', []byte{255})) {
			q = queued.next()
		}
		for string(p.raw) == string(frame3('L', []byte{255})) {
			p = proposed.next()
		}
		queued.check(q, failed(w, 3, "4"))
		proposed.check(p, frame3('I', u64(4)))
	default:
		for c, e := range map[*client]event{queued: q, proposed: p} {
			c.check(e, []byte(noLeader))
			c.wantEnd()
		}
	}
}
