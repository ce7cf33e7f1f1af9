package locktable_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

var rewrite = flag.Bool("rewrite", false, "write what the table answers into the dialogue scripts")

// TestDialogues plays testdata/dialogue/*.txt against the table, and against the reference, so that both are held to
// the same written words. The first word of a line is its speaker:
//
//	table first=1 keys=10 waiters=2 total=10     a fresh table in single mode (grace=5s: with a grace)
//	cluster n1 n2 records=8                      tables whose records wait for "commits"
//	alice acquires orders lease=10s wait=30s     several keys are a set; owner=7: idempotent (wire 0.3);
//	                                             by-key, in-order (wire 0.1); id=3: shown with the answer
//	alice releases orders token=1                or: by-key
//	alice leaves / finishes                      her connection ends / sends no more and wants all answers
//	alice misses orders token=1                  that A was never handed to her socket
//	alice joins n2                               she speaks to another node
//	clock +2s / clock jumps +2s                  with a tick at every deadline / with one tick at the end
//	n1 begins, commits, refuses, forgets [record=3 | all], loses, stops, restarts, sleeps, wakes, restores n2
//	counts keys held waiters                     from Counts
//	same n1 n2                                   their snapshots are equal
func TestDialogues(t *testing.T) {
	files, err := filepath.Glob("testdata/dialogue/*.txt")
	if err != nil || len(files) < 40 {
		t.Fatalf("got %d scripts (%v), want at least 40", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) { playFile(t, file, true) })
		if !*rewrite {
			t.Run(name+"/reference", func(t *testing.T) { playFile(t, file, false) })
		}
	}
}

func playFile(t *testing.T, file string, table bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := newDialogue(table)
	got, err := d.play(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if got == string(text) {
		return
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	w, g := strings.Split(string(text), "\n"), strings.Split(got, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			t.Fatalf("%s:%d: got\n%s\nwant\n%s", file, i+1, strings.Join(window(g, i), "\n"), strings.Join(window(w, i), "\n"))
		}
	}
	t.Fatalf("%s: more is expected than was said", file)
}

// window is a few lines around line i.
func window(lines []string, i int) []string {
	return lines[max(0, min(i-4, len(lines))):min(len(lines), i+5)]
}

type person struct {
	name     string
	slot     int
	gen      int
	gone     bool
	finished bool // sends no more, and its connection has not ended
	node     *speakerNode
}

func (p *person) session() locktable.Session { return session(0, p.slot, p.gen) }

type speakerNode struct {
	name    string
	table   subject
	inc     byte
	stint   uint64
	applied int
	asleep  bool
	outbox  []proposal
}

func (n *speakerNode) by() locktable.Proposer {
	return locktable.Proposer{Incarnation: [16]byte{n.name[1], n.inc}, Stint: n.stint}
}

// dialogue is a script being played.
type dialogue struct {
	real    bool
	cluster bool
	limits  locktable.Limits
	first   locktable.Token
	now     time.Duration
	nodes   []*speakerNode
	people  []*person
	log     []proposal
	out     []string
	id      uint64
	shown   map[uint64]bool              // ids that the script gave
	flags   map[uint64]locktable.Flags   // by id: they must come back
	given   map[string]locktable.Session // by name and token: whose A it was
}

func newDialogue(table bool) *dialogue {
	d := &dialogue{real: table, shown: map[uint64]bool{}, flags: map[uint64]locktable.Flags{}, id: 1 << 32}
	d.given = map[string]locktable.Session{}
	d.reset(nil)
	return d
}

// play returns the script with the answers that were given.
func (d *dialogue) play(text string) (got string, err error) {
	defer func() {
		if r := recover(); r != nil && err == nil {
			err = fmt.Errorf("after\n%s\n%v", got, r)
		}
	}()
	var b strings.Builder
	var said []string
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if line != "----" {
			b.WriteString(line + "\n")
			if line != "" && line[0] != '#' {
				said = append(said, line)
			}
			continue
		}
		b.WriteString("----\n")
		for _, s := range said {
			got = b.String() + s
			if err := d.say(strings.Fields(s)); err != nil {
				return got, fmt.Errorf("%q: %w", s, err)
			}
		}
		if len(d.out) == 0 {
			d.out = append(d.out, "(no answer)")
		}
		for _, o := range d.out {
			b.WriteString(o + "\n")
		}
		said, d.out = nil, nil
		for i+1 < len(lines) && lines[i+1] != "" {
			i++
		}
	}
	if len(said) > 0 {
		return b.String(), fmt.Errorf("%q stands without ----", said)
	}
	return b.String(), nil
}

// reset makes the tables anew: one in single mode, or a cluster.
func (d *dialogue) reset(words []string) {
	d.limits = locktable.Limits{MaxKeys: 1000, MaxWaiters: 100, MaxTotalWaiters: 1000, MaxRecords: 8, MaxEntries: 256}
	d.first, d.cluster, d.log, d.people = 1, false, nil, nil
	opts, names := options(words)
	for k, v := range opts {
		switch k {
		case "keys":
			d.limits.MaxKeys = int(number(v))
		case "waiters":
			d.limits.MaxWaiters = int(number(v))
		case "total":
			d.limits.MaxTotalWaiters = int(number(v))
		case "records":
			d.limits.MaxRecords = int(number(v))
		case "entries":
			d.limits.MaxEntries = int(number(v))
		case "first":
			d.first = locktable.Token(number(v))
		case "grace":
		default:
			panic("table: no option " + k)
		}
	}
	d.cluster = len(names) > 0
	if !d.cluster {
		names = []string{"n0"}
	}
	d.nodes = nil
	for _, name := range names {
		d.nodes = append(d.nodes, &speakerNode{name: name})
		d.boot(d.nodes[len(d.nodes)-1])
	}
	if !d.cluster {
		n := d.nodes[0]
		n.stint = 1
		n.table.Commit(d.now, n.table.Begin(d.now, n.by(), terms(opts)))
	}
}

func (d *dialogue) boot(n *speakerNode) {
	sink := sinkFunc(func(r *locktable.Reply) { d.reply(n, r) })
	if d.real {
		n.table = real{Table: locktable.New(d.limits, d.first, sink), direct: !d.cluster}
	} else {
		n.table = newReference(d.limits, d.first, sink)
	}
	n.applied, n.outbox, n.inc = 0, nil, n.inc+1
}

func terms(opts map[string]string) (t locktable.StartTerms) {
	if v, ok := opts["grace"]; ok {
		t.Grace = span(v)
	}
	if v, ok := opts["first"]; ok {
		t.FirstToken = locktable.Token(number(v))
	}
	t.Addresses = opts["addresses"]
	return t
}

func (d *dialogue) say(words []string) error {
	var err error
	before := len(d.out)
	switch n := d.node(words[0]); {
	case words[0] == "table" || words[0] == "cluster":
		d.reset(words[1:])
	case words[0] == "clock":
		err = d.clock(words[1:])
	case words[0] == "counts":
		d.count(d.nodes[0], words[1:])
	case words[0] == "same":
		d.same(d.node(words[1]), d.node(words[2]))
	case words[0] == "show":
		for _, n := range d.nodes {
			if t, ok := n.table.(real); ok {
				var b strings.Builder
				t.Describe(&b)
				d.out = append(d.out, strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")...)
			}
		}
	case n != nil:
		err = d.raft(n, words[1], words[2:])
	default:
		err = d.client(d.person(words[0]), words[1], words[2:])
	}
	if err != nil {
		return err
	}
	if len(words) > 1 && slices.Contains([]string{"loses", "restores"}, words[1]) {
		slices.Sort(d.out[before:]) // no order is promised among those who lose their place together
	}
	d.pump()
	for _, n := range d.nodes {
		if err := n.table.Check(); err != nil {
			return fmt.Errorf("Check of %s: %w", n.name, err)
		}
	}
	return nil
}

// pump takes what the tables propose. In single mode it commits at once.
func (d *dialogue) pump() {
	for _, n := range d.nodes {
		if !d.cluster {
			settle(n.table, d.now)
			continue
		}
		for p, ok := n.table.Propose(d.now); ok; p, ok = n.table.Propose(d.now) {
			n.outbox = append(n.outbox, p)
			d.out = append(d.out, n.name+" -> "+p.String())
		}
	}
}

func (d *dialogue) client(p *person, verb string, words []string) error {
	opts, names := options(words)
	keys, flags := names[:0:0], locktable.Flags(0)
	for _, w := range names {
		switch w {
		case "by-key":
			flags |= locktable.ByKey
		case "in-order":
			flags |= locktable.InOrder
		case "as-set":
			flags |= locktable.AsSet
		default:
			keys = append(keys, w)
		}
	}
	id := d.id
	d.id++
	if v, ok := opts["owner"]; ok {
		id, flags = number(v), flags|locktable.Idempotent
	}
	if v, ok := opts["id"]; ok {
		id = number(v)
		d.shown[id] = true
	}
	if p.gone && (verb == "acquires" || verb == "releases") {
		if p.finished {
			p.node.table.Leave(d.now, p.session(), false) // a slot is used again after its connection has ended
		}
		p.gen, p.gone, p.finished = p.gen+1, false, false
	}
	switch t := p.node.table; verb {
	case "acquires":
		d.flags[id] = flags
		if id == 0 {
			d.flags[id] &^= locktable.Idempotent // it comes back only where it counts
		}
		wait := time.Duration(0)
		if w := opts["wait"]; w == "forever" {
			wait = locktable.Forever
		} else if w != "" {
			wait = span(w)
		}
		t.Acquire(d.now, &locktable.Acquire{Session: p.session(), ID: id, Keys: keySet(keys...), Flags: flags, Wait: wait,
			Lease: span(opts["lease"])})
	case "releases":
		d.flags[id] = flags
		r := &locktable.Release{Session: p.session(), ID: id, Keys: keySet(keys...), Flags: flags}
		if flags&locktable.ByKey == 0 {
			r.Token = locktable.Token(number(opts["token"]))
		}
		t.Release(d.now, r)
	case "leaves", "finishes":
		t.Leave(d.now, p.session(), verb == "finishes")
		p.gone, p.finished = true, verb == "finishes"
	case "misses":
		t.Undelivered(d.now, d.given[p.name+opts["token"]], []byte(keys[0]), locktable.Token(number(opts["token"])))
	case "joins":
		p.node = d.node(names[0])
		p.gen, p.gone = p.gen+1, false
	default:
		return fmt.Errorf("no verb %q", verb)
	}
	return nil
}

func (d *dialogue) raft(n *speakerNode, verb string, words []string) error {
	opts, names := options(words)
	switch verb {
	case "begins":
		n.stint++
		n.outbox = append(n.outbox, n.table.Begin(d.now, n.by(), terms(opts)))
		d.out = append(d.out, n.name+" -> start")
	case "counts":
		d.count(n, words)
	case "commits", "refuses", "forgets":
		for {
			if slices.Contains(names, "all") && len(n.outbox) == 0 {
				return nil
			}
			p, err := n.take(opts["record"])
			if err != nil {
				return err
			}
			switch verb {
			case "commits":
				d.log = append(d.log, p)
				d.deliver()
			case "refuses":
				n.table.Refuse(d.now, p.by, p.seq)
			}
			if !slices.Contains(names, "all") {
				return nil
			}
		}
	case "loses":
		n.table.Lose(d.now)
	case "stops":
		n.table.Stop(d.now)
	case "sleeps", "wakes":
		n.asleep = verb == "sleeps"
		d.deliver()
	case "restarts":
		d.boot(n)
		d.deliver()
	case "restores":
		from := d.node(names[0])
		if a, ok := n.table.(real); ok {
			if err := a.Restore(d.now, from.table.(real).Snapshot(nil)); err != nil {
				return err
			}
		} else {
			n.table.(*reference).restore(d.now, from.table.(*reference))
		}
		n.applied = from.applied
	default:
		return fmt.Errorf("no verb %q", verb)
	}
	return nil
}

// take removes a record from the outbox: the oldest, or the one of that sequence.
func (n *speakerNode) take(seq string) (proposal, error) {
	for i, p := range n.outbox {
		if seq == "" || p.seq == number(seq) {
			n.outbox = slices.Delete(n.outbox, i, i+1)
			return p, nil
		}
	}
	return proposal{}, fmt.Errorf("%s has no such record outstanding", n.name)
}

// deliver gives every node that is awake the committed records that it has not applied.
func (d *dialogue) deliver() {
	for _, n := range d.nodes {
		for !n.asleep && n.applied < len(d.log) {
			n.applied++
			n.table.Commit(d.now, d.log[n.applied-1])
			d.pump()
		}
	}
}

func (d *dialogue) clock(words []string) error {
	jump := words[0] == "jumps"
	target := d.now + span(strings.TrimPrefix(words[len(words)-1], "+"))
	for range 100_000 {
		next := target
		for _, n := range d.nodes {
			if at, ok := n.table.Deadline(); ok && at < next && !jump && n.table.Leading() {
				next = max(at, d.now)
			}
		}
		last := next == target
		d.now = next
		for _, n := range d.nodes {
			if n.table.Leading() {
				n.table.Tick(d.now)
			}
		}
		d.pump()
		if last {
			return nil
		}
	}
	return fmt.Errorf("a deadline stands still at %v", d.now)
}

func (d *dialogue) count(n *speakerNode, names []string) {
	c := n.table.Counts()
	values := map[string]any{"keys": c.Keys, "held": c.Held, "waiters": c.Waiters, "grants": c.Grants,
		"releases": c.Releases, "not-held": c.NotHelds, "timeouts": c.Timeouts, "expiries": c.Expiries,
		"revocations": c.Revocations, "hand-overs": c.HandOvers, "reaffirms": c.Reaffirms, "queued": c.Queued,
		"busy-keys": c.BusyKeys, "busy-waiters": c.BusyWaiters, "busy-key-waiters": c.BusyKeyWaiters,
		"busy-spent": c.BusySpent, "acquires": c.UndecidedAcquires, "releasing": c.UndecidedReleases,
		"records": c.RecordsInFlight, "keys-gate": gate(c.KeysGateClosed), "waiters-gate": gate(c.WaitersGateClosed)}
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s=%v", name, values[name]))
	}
	d.out = append(d.out, strings.Join(parts, " "))
}

func gate(closed bool) string {
	if closed {
		return "closed"
	}
	return "open"
}

func (d *dialogue) same(a, b *speakerNode) {
	same := false
	if x, ok := a.table.(real); ok {
		same = string(x.Snapshot(nil)) == string(b.table.(real).Snapshot(nil))
	} else {
		same = a.table.(*reference).rep.text() == b.table.(*reference).rep.text()
	}
	d.out = append(d.out, fmt.Sprint(same))
}

func (d *dialogue) reply(n *speakerNode, r *locktable.Reply) {
	name := fmt.Sprintf("session %x", uint64(r.Session))
	for _, p := range d.people {
		if p.session() == r.Session && p.node == n {
			name = p.name
		}
	}
	s := name + " <- " + kinds[r.Kind]
	if r.Kind != locktable.Left {
		s += " " + string(r.Key)
		if f := d.flags[r.ID]; f != r.Flags {
			s += fmt.Sprintf(" flags=%b not %b", r.Flags, f)
		}
	}
	switch r.Kind {
	case locktable.Released, locktable.NotHeld, locktable.Mismatched:
		if r.Flags&locktable.ByKey == 0 {
			s += fmt.Sprintf(" token=%d", r.Token)
		}
	case locktable.Granted:
		s += fmt.Sprintf(" token=%d", r.Token)
		d.given[name+fmt.Sprint(r.Token)] = r.Session
	}
	if d.shown[r.ID] {
		s += fmt.Sprintf(" id=%d", r.ID)
	}
	d.out = append(d.out, s)
}

func (d *dialogue) node(name string) *speakerNode {
	for _, n := range d.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

func (d *dialogue) person(name string) *person {
	for _, p := range d.people {
		if p.name == name {
			return p
		}
	}
	p := &person{name: name, slot: len(d.people), gen: 1, node: d.nodes[0]}
	d.people = append(d.people, p)
	return p
}

func options(words []string) (opts map[string]string, names []string) {
	opts = map[string]string{}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			opts[k] = v
		} else {
			names = append(names, w)
		}
	}
	return opts, names
}

func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func span(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}
