package raftglue

import (
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// interleaving is a state of several coordinators, and an operator who abandons, at work on the same three nodes. All
// messages and all steps are taken in every order; a promise may arrive after its coordinator has given up.
type interleaving struct {
	nodes    [3]formation
	coords   []coordinator
	begun    []ClusterID
	restarts int // still allowed
	lives    byte
}

type coordinator struct {
	at       int // node; for an operator who abandons, where it asks
	abandons bool
	phase    byte
	next     int // hellos asked so far
	life     Incarnation
	hellos   [3]*hello
	promise  *promise
	flying   byte // promises or withdrawals under way, a bit a node
	late     byte // promises under way though the coordinator has given up
	granted  byte
}

const (
	asking byte = iota
	promising
	withdrawing
	ended0
)

func (s *interleaving) clone() *interleaving {
	c := *s
	c.coords, c.begun = slices.Clone(s.coords), slices.Clone(s.begun)
	for i := range c.nodes {
		c.nodes[i].withdrawn = slices.Clone(s.nodes[i].withdrawn)
	}
	return &c
}

func (s *interleaving) key() string {
	b := make([]byte, 0, 128)
	for i := range s.nodes {
		f := &s.nodes[i]
		b = append(b, f.inc[0], byte(btoi(f.formed)), f.cluster[0], byte(len(f.withdrawn)))
		if f.promised != nil {
			b = append(b, f.promised.Cluster[0])
		}
		for _, w := range f.withdrawn {
			b = append(b, w[0])
		}
	}
	for i := range s.coords {
		c := &s.coords[i]
		b = append(b, '|', c.phase, byte(c.next), c.flying, c.late, c.granted)
		for _, h := range c.hellos {
			if h != nil {
				b = append(b, h.Inc[0], byte(btoi(h.Formed)), byte(btoi(h.Promised)))
			}
		}
	}
	return string(append(b, '|', byte(len(s.begun)), byte(s.restarts)))
}

func (s *interleaving) hello(i int) *hello {
	f := &s.nodes[i]
	return &hello{Inc: f.inc, Slot: i, Members: f.members, Formed: f.formed, Promised: f.promised != nil}
}

// steps returns all states that one step leads to.
func (s *interleaving) steps() (out []*interleaving) {
	for i := range s.coords {
		out = append(out, s.coordinatorSteps(i)...)
	}
	for i := range s.nodes { // a member of a cluster opens a connection
		for j := range s.nodes {
			if from := &s.nodes[j]; from.formed && !s.nodes[i].formed {
				n := s.clone()
				if n.nodes[i].contacted(from.cluster) {
					out = append(out, n)
				}
			}
		}
	}
	if s.restarts > 0 {
		for i := range s.nodes {
			n := s.clone()
			n.restarts--
			n.lives++
			n.nodes[i] = formation{inc: Incarnation{100 + n.lives}, slot: i, members: n.nodes[i].members}
			out = append(out, n)
		}
	}
	return out
}

func (s *interleaving) coordinatorSteps(i int) (out []*interleaving) {
	c := &s.coords[i]
	step := func(f func(n *interleaving, c *coordinator)) {
		n := s.clone()
		f(n, &n.coords[i])
		out = append(out, n)
	}
	for j := range 3 {
		bit := byte(1) << j
		if c.late&bit != 0 {
			step(func(n *interleaving, c *coordinator) { c.late &^= bit; n.nodes[j].promise(c.promise) })
		}
	}
	alive := s.nodes[c.at].inc == c.life
	if !alive {
		return out // its process has died
	}
	switch c.phase {
	case asking:
		step(func(n *interleaving, c *coordinator) { n.ask(i) })
	case promising:
		for j := range 3 {
			bit := byte(1) << j
			if c.flying&bit != 0 {
				step(func(n *interleaving, c *coordinator) {
					c.flying &^= bit
					if n.nodes[j].promise(c.promise) == nil {
						c.granted |= bit
					}
				})
			}
		}
		if c.granted == 7 {
			step(func(n *interleaving, c *coordinator) { n.begin(i) })
		}
		step(func(n *interleaving, c *coordinator) { // gives up, for an answer that is late or no
			c.phase, c.late, c.flying = withdrawing, c.flying, 7
		})
	case withdrawing:
		for j := range 3 {
			bit := byte(1) << j
			if c.flying&bit != 0 {
				step(func(n *interleaving, c *coordinator) {
					c.flying &^= bit
					if c.abandons {
						n.nodes[j].withdraw(ClusterID{})
					} else {
						n.nodes[j].withdraw(c.promise.Cluster)
					}
					if c.flying == 0 {
						c.phase = ended0
					}
				})
			}
		}
	}
	return out
}

func (s *interleaving) ask(i int) {
	c := &s.coords[i]
	c.hellos[c.next] = s.hello(c.next)
	if c.next++; c.next < 3 {
		return
	}
	if c.abandons {
		c.phase, c.flying = withdrawing, 7
		for _, h := range c.hellos {
			if h.Formed {
				c.phase = ended0
			}
		}
		return
	}
	p, err := s.nodes[c.at].plan(c.hellos[:], 1, nil)
	if err != nil {
		c.phase = ended0
		return
	}
	p.Cluster = ClusterID{byte(i + 1)}
	c.promise, c.phase, c.flying = p, promising, 7
}

func (s *interleaving) begin(i int) {
	c := &s.coords[i]
	if s.nodes[c.at].begin(c.promise.Cluster) != nil {
		c.phase, c.flying = withdrawing, 7
		return
	}
	c.phase = ended0
	s.begun = append(s.begun, c.promise.Cluster)
}

// check: at most one cluster begins while nobody forgets; and never can two have a majority.
func (s *interleaving) check(forgets bool) error {
	if len(s.begun) > 1 && !forgets {
		return errTwo
	}
	majorities := 0
	for _, c := range s.begun {
		n := 0
		for i := range s.nodes {
			f := &s.nodes[i]
			if f.formed && f.cluster == c || f.promised != nil && f.promised.Cluster == c {
				n++
			}
		}
		if n >= 2 {
			majorities++
		}
	}
	if majorities > 1 {
		return errTwo
	}
	return nil
}

func (s *interleaving) promised() bool {
	return slices.ContainsFunc(s.nodes[:], func(f formation) bool { return f.promised != nil })
}

var errTwo = errors.New("two clusters")

func explore(t *testing.T, s *interleaving, forgets bool) (states, formed int) {
	t.Helper()
	seen := map[string]bool{s.key(): true}
	todo := []*interleaving{s}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if err := s.check(forgets); err != nil {
			t.Fatalf("%v in state %x", err, s.key())
		}
		if len(s.begun) > 0 {
			formed++
		}
		next := s.steps()
		if len(next) == 0 && len(s.begun) == 0 && !forgets && s.promised() {
			t.Fatalf("all have ended, none has begun, and a promise is left, in state %x", s.key())
		}
		for _, n := range next {
			if k := n.key(); !seen[k] {
				seen[k] = true
				todo = append(todo, n)
			}
		}
	}
	return len(seen), formed
}

var everyOrder = flag.Bool("every-order", false, "search also the largest cases of forming in every order, 1.2 million states, instead of at random")

// walk goes from the start to an end, in 20,000 orders drawn from a seed.
func walk(t *testing.T, start *interleaving, forgets bool) (formed int) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 20000 {
		s := start
		for {
			next := s.steps()
			if len(next) == 0 {
				break
			}
			s = next[rnd.IntN(len(next))]
			if err := s.check(forgets); err != nil {
				t.Fatalf("seed %d: %v in state %x", seed, err, s.key())
			}
		}
		formed += len(s.begun)
	}
	return formed
}

func TestEveryInterleavingFormsOneClusterOrNone(t *testing.T) {
	members := []string{"a:1", "b:1", "c:1"}
	fresh := func(restarts int, coords ...coordinator) *interleaving {
		s := &interleaving{coords: coords, restarts: restarts}
		for i := range s.nodes {
			s.nodes[i] = formation{inc: Incarnation{byte(i + 1)}, slot: i, members: members}
		}
		for i := range coords {
			coords[i].life = s.nodes[coords[i].at].inc
		}
		return s
	}
	for _, c := range []struct {
		name   string
		s      *interleaving
		forget bool
	}{
		{"one init", fresh(0, coordinator{at: 0}), false},
		{"two inits, two nodes", fresh(0, coordinator{at: 0}, coordinator{at: 1}), false},
		{"two inits, one node", fresh(0, coordinator{at: 0}, coordinator{at: 0}), false},
		{"init and abandon", fresh(0, coordinator{at: 0}, coordinator{at: 1, abandons: true}), false},
		{"init, a restart", fresh(1, coordinator{at: 0}), true},
		{"two inits, a restart", fresh(1, coordinator{at: 0}, coordinator{at: 1}), true},
		{"init, abandon, two restarts", fresh(2, coordinator{at: 0}, coordinator{at: 2, abandons: true}), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.forget && len(c.s.coords) > 1 && !*everyOrder {
				formed := walk(t, c.s, c.forget)
				t.Logf("%d states with a cluster", formed)
				return
			}
			states, formed := explore(t, c.s, c.forget)
			t.Logf("%d states, %d with a cluster", states, formed)
			if formed == 0 {
				t.Error("no interleaving forms a cluster: the search proves nothing")
			}
		})
	}
}

// TestFormingWithoutPromisesMakesTwoClusters shows that the search finds what it is for.
func TestFormingWithoutPromisesMakesTwoClusters(t *testing.T) {
	members := []string{"a:1", "b:1", "c:1"}
	s := &interleaving{}
	for i := range s.nodes {
		s.nodes[i] = formation{inc: Incarnation{byte(i + 1)}, slot: i, members: members}
	}
	for i := range 2 {
		p := &promise{Cluster: ClusterID{byte(i + 1)}, By: i, Members: members}
		s.nodes[i].promised = p // of nobody but itself
		if err := s.nodes[i].begin(p.Cluster); err != nil {
			t.Fatal(err)
		}
		s.begun = append(s.begun, p.Cluster)
	}
	if s.check(false) == nil {
		t.Error("two clusters have begun, and the check says nothing")
	}
}

func TestPlanRefusals(t *testing.T) {
	members := []string{"a:1", "b:1", "c:1"}
	f := formation{inc: Incarnation{1}, slot: 0, members: members}
	good := func() []*hello {
		var hs []*hello
		for i := range 3 {
			hs = append(hs, &hello{Inc: Incarnation{byte(i + 1)}, Slot: i, Self: members[i], Members: members, MaxLease: 5e9})
		}
		return hs
	}
	for _, c := range []struct {
		why  string
		edit func(hs []*hello)
	}{
		{"does not answer", func(hs []*hello) { hs[1] = nil }},
		{"part of cluster", func(hs []*hello) { hs[1].Formed = true }},
		{"part of a cluster already", func(hs []*hello) { hs[0].Formed = true }},
		{"to form another, stop all nodes first", func(hs []*hello) { hs[0].Formed = true }},
		{"move their data directories away first", func(hs []*hello) { hs[2].Formed, hs[2].Durable = true, true }},
		{"another list", func(hs []*hello) { hs[2].Members = []string{"a:1", "c:1", "b:1"} }},
		{"check ADVERTISE", func(hs []*hello) { hs[2].Slot = 1 }},
		{"init --abandon", func(hs []*hello) { hs[2].Promised = true }},
		{"one process", func(hs []*hello) { hs[2].Inc = hs[1].Inc }},
	} {
		hs := good()
		c.edit(hs)
		if _, err := f.plan(hs, 1, nil); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("want a refusal that says %q, got %v", c.why, err)
		}
	}
	hs := good()
	hs[1].MaxLease = 250e9
	for _, first := range []uint64{1, 7} {
		p, err := f.plan(hs, first, nil)
		if err != nil || p.Terms.FirstToken != first || p.Terms.Grace.Seconds() != 250 {
			t.Errorf("with the first token %d: %+v, %v; want the longest lease of all as grace", first, p, err)
		}
	}
	if p, err := f.plan(hs, 0, nil); err != nil || p.Terms != (Terms{FirstToken: 1}) {
		t.Errorf("without one: %+v, %v", p, err)
	}
}

func TestPromiseOfAnEarlierLife(t *testing.T) {
	members := []string{"a:1", "b:1", "c:1"}
	f := formation{inc: Incarnation{9}, slot: 1, members: members}
	p := &promise{Cluster: ClusterID{1}, Members: members, Incs: []Incarnation{{1}, {2}, {3}}}
	if err := f.promise(p); !errors.Is(err, errOtherLife) {
		t.Errorf("a node that has started since promised: %v", err)
	}
	p.Incs[1] = f.inc
	if err := f.promise(p); err != nil {
		t.Error(err)
	}
	f.closed = true
	if f.contacted(p.Cluster) || f.begin(p.Cluster) == nil || f.join(p.Cluster, 1, 3, Terms{}) == nil {
		t.Error("a node that stops became part of a cluster")
	}
}
