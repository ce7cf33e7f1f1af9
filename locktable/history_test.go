package locktable_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

var (
	histories = flag.Int("histories", 300, "random histories a test plays")
	shrinking = flag.Bool("shrink", true, "make a failing history or trace small before it is printed")
	firstSeed = flag.Uint64("seed", 0, "seed of the first history; 0: from the clock")
)

// seedOf is the first seed of a test; it is printed, so that a failure can be played again with -seed.
func seedOf(t *testing.T) uint64 {
	seed := *firstSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1_000_000_000
	}
	t.Logf("seed %d, %d histories (again with -seed %d)", seed, *histories, seed)
	return seed
}

// duel plays one script line after the other to the table and to the reference.
type duel struct {
	table, ref *dialogue
	takes      map[string]bool // "person key token": an A that was given and may turn out undelivered
	passed     map[string]bool // records that the log has passed by: they can only be refused
	over       bool            // two deadlines coincided: from here the order is not promised
}

func newDuel() *duel {
	return &duel{table: newDialogue(true), ref: newDialogue(false), takes: map[string]bool{}, passed: map[string]bool{}}
}

func (d *duel) lead() *refLead { return d.ref.nodes[0].table.(*reference).lead }

// allowed says whether a line means something now: a history that has lost lines may hold some that do not.
func (d *duel) allowed(words []string) bool {
	lead := d.lead()
	switch {
	case strings.HasPrefix(words[0], "p"):
		if lead == nil {
			return false
		}
		if words[1] == "misses" {
			at := strings.Join([]string{words[0], words[2], words[3]}, " ")
			ok := d.takes[at]
			delete(d.takes, at)
			return ok
		}
	case words[0] == "n1" && (words[1] == "commits" || words[1] == "refuses"):
		for i, p := range d.ref.nodes[0].outbox {
			if len(words) > 2 && fmt.Sprintf("record=%d", p.seq) != words[2] {
				continue
			}
			at := fmt.Sprint(p.by, p.seq)
			if words[1] == "refuses" {
				return true
			}
			for _, passed := range d.ref.nodes[0].outbox[:i] {
				d.passed[fmt.Sprint(passed.by, passed.seq)] = true
			}
			return !d.passed[at]
		}
		return false
	case words[0] == "n1" && words[1] == "begins":
		return lead == nil && !slices.ContainsFunc(d.ref.nodes[0].outbox, func(p proposal) bool { return p.seq == 0 })
	}
	return true
}

// say gives both the line and compares what they answer, whatever the order within the step, and what is in them then.
func (d *duel) say(line string) error {
	words := strings.Fields(line)
	if d.over || !d.allowed(words) {
		return nil
	}
	if err := d.ref.say(words); err != nil {
		return fmt.Errorf("reference: %w", err)
	}
	if err := d.table.say(words); err != nil {
		return err
	}
	want, got := d.answers(d.ref), d.answers(d.table)
	lead := d.lead()
	if lead != nil && lead.ties {
		d.over = true
		return nil
	}
	for _, s := range want {
		if who, what, ok := strings.Cut(s, " <- granted "); ok {
			d.takes[who+" "+what] = true
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	c, w := d.table.nodes[0].table.Counts(), d.ref.nodes[0].table.Counts()
	c.UndecidedAcquires, c.UndecidedReleases = 0, 0
	if lead == nil {
		c.Keys, c.Held, c.Waiters, w.Keys, w.Held, w.Waiters = 0, 0, 0, 0, 0, 0
		c.KeysGateClosed, c.WaitersGateClosed = w.KeysGateClosed, w.WaitersGateClosed
	} else if lead.hold {
		c.Keys, c.KeysGateClosed = w.Keys, w.KeysGateClosed // keys that came free are forgotten after the hold
	}
	if c != w {
		return fmt.Errorf("counts: got\n\t%+v\nwant\n\t%+v", c, w)
	}
	return d.deadlines()
}

// deadlines must never be later than what the reference waits for: the server sleeps until then.
func (d *duel) deadlines() error {
	want, ok := d.ref.nodes[0].table.Deadline()
	if !ok {
		return nil
	}
	if got, ok := d.table.nodes[0].table.Deadline(); !ok || got > want {
		return fmt.Errorf("Deadline: got %v, %v, want at most %v", got, ok, want)
	}
	return nil
}

// answers are those of the last line, sorted, without what was said to sessions that are gone (their loops drop it).
func (d *duel) answers(x *dialogue) []string {
	out := x.out
	x.out = nil
	out = slices.DeleteFunc(out, func(s string) bool {
		who, what, ok := strings.Cut(s, " <- ")
		if !ok || strings.HasPrefix(what, "granted") {
			return false
		}
		if strings.HasPrefix(who, "session ") {
			return true
		}
		return d.ref.person(who).gone && what != "left"
	})
	slices.Sort(out)
	return out
}

// playAll returns the first complaint, and how many lines were played by then.
func playAll(lines []string) (err error, n int) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	d := newDuel()
	for i, line := range lines {
		n = i + 1
		if err := d.say(line); err != nil {
			return fmt.Errorf("%q: %w", line, err), n
		}
	}
	return nil, n
}

// shrink drops lines as long as there is a complaint.
func shrink(lines []string, err error) ([]string, error) {
	for size := len(lines) / 2; size > 0; size /= 2 {
		for i := 1; i < len(lines); { // the first line makes the table
			fewer := slices.Delete(slices.Clone(lines), i, min(i+size, len(lines)))
			if e, n := playAll(fewer); e != nil {
				lines, err = fewer[:n], e
			} else {
				i += size
			}
		}
	}
	return lines, err
}

// mix makes script lines. What it needs to know of the state it reads from the reference.
type mix struct {
	*rand.Rand
	d       *duel
	cluster bool
	seen    []string // "keys token=N" of grants so far
}

func (m *mix) one(choices ...string) string { return choices[m.IntN(len(choices))] }

func (m *mix) ms(most int) string { return fmt.Sprintf("%dms", 1+m.IntN(most)) }

func (m *mix) person() string { return fmt.Sprintf("p%d", m.IntN(6)) }

func (m *mix) set(most int) string {
	keys := []string{"a", "b", "c", "d", "e", "f"}
	m.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys = keys[:1+m.IntN(most)]
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

func (m *mix) acquire() string {
	wait := m.one("", " wait=forever", " wait="+m.ms(3000), " wait="+m.ms(20000), " wait="+m.ms(300_000))
	s := m.person() + " acquires "
	switch m.IntN(7) {
	case 0, 1:
		s += m.set(4)
	case 2, 3:
		s += m.set(1) + fmt.Sprintf(" owner=%d", 1+m.IntN(4))
		if wait == "" {
			wait = " wait=forever" // as wire 0.3 means it
		}
	case 4:
		s += m.set(1) + " by-key in-order"
	default:
		s += m.set(1)
	}
	return s + " lease=" + m.one(m.ms(2000), m.ms(15000), m.ms(400_000), "36000000ms") + wait
}

func (m *mix) release() string {
	s := m.person() + " releases "
	held := m.d.lead()
	if held != nil && len(held.rep.grants) > 0 && m.IntN(5) > 0 {
		g := held.rep.grants[m.IntN(len(held.rep.grants))]
		switch keys := strings.Join(keysOf(locktable.KeySet(g.keys)), " "); {
		case m.IntN(6) == 0:
			return s + keys[:1] + " by-key"
		case m.IntN(6) == 0:
			return s + fmt.Sprintf("%s token=%d", m.set(3), g.token)
		default:
			return s + fmt.Sprintf("%s token=%d", keys, g.token)
		}
	}
	return s + fmt.Sprintf("%s token=%d", m.set(2), 1+m.IntN(40))
}

func (m *mix) line() string {
	switch n := m.IntN(100); {
	case n < 45:
		return m.acquire()
	case n < 68:
		return m.release()
	case n < 72:
		return m.person() + " leaves"
	case n < 73 && !m.cluster:
		return m.person() + " finishes"
	case n < 78:
		return m.miss()
	case n < 98:
		return "clock +" + m.one("1ms", m.ms(300), m.ms(3000), m.ms(30000))
	default:
		return "clock +" + m.one(m.ms(4_000_000), m.ms(8_000_000))
	}
}

// miss takes one of the answers that may not have reached its client.
func (m *mix) miss() string {
	var takes []string
	for at := range m.d.takes {
		takes = append(takes, at)
	}
	slices.Sort(takes)
	for len(takes) > 0 {
		at := takes[m.IntN(len(takes))]
		words := strings.Fields(at)
		if lead := m.d.lead(); lead != nil {
			for _, g := range lead.rep.grants {
				if fmt.Sprintf("token=%d", g.token) == words[2] {
					return words[0] + " misses " + words[1] + " " + words[2]
				}
			}
		}
		takes = remove(takes, at)
	}
	return "clock +1ms"
}

// raftLine is what Raft does with the records of the one node.
func (m *mix) raftLine() string {
	n := m.d.ref.nodes[0]
	switch x := m.IntN(40); {
	case m.d.lead() == nil && !slices.ContainsFunc(n.outbox, func(p proposal) bool { return p.seq == 0 }):
		return "n1 begins"
	case len(n.outbox) == 0:
		return m.line()
	case x < 3:
		return fmt.Sprintf("n1 refuses record=%d", n.outbox[m.IntN(len(n.outbox))].seq)
	case x == 3:
		return "n1 loses"
	case x == 4:
		return fmt.Sprintf("n1 commits record=%d", n.outbox[m.IntN(len(n.outbox))].seq)
	default:
		for _, p := range n.outbox {
			if !m.d.passed[fmt.Sprint(p.by, p.seq)] {
				return fmt.Sprintf("n1 commits record=%d", p.seq)
			}
		}
		return "n1 refuses"
	}
}

func (m *mix) history() []string {
	limits := m.one("", "keys=4", "keys=9 waiters=3", "total=5 waiters=4", "keys=5 total=3 waiters=2",
		"first=18446744073709551600")
	if !m.cluster {
		return []string{"table " + limits}
	}
	return []string{"cluster n1 records=" + m.one("1", "2", "3", "8") + " " + limits, "n1 begins", "n1 commits"}
}

// play makes a history line by line and plays it, until a complaint or two coinciding deadlines.
func (m *mix) play() (lines []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	lines = m.history()
	for i := 0; i < 120 && !m.d.over; i++ {
		switch {
		case i < len(lines):
		case m.cluster && m.IntN(2) == 0:
			lines = append(lines, m.raftLine())
		default:
			lines = append(lines, m.line())
		}
		if err := m.d.say(lines[i]); err != nil {
			return lines[:i+1], fmt.Errorf("%q: %w", lines[i], err)
		}
	}
	return lines, nil
}

func newMix(seed uint64, cluster bool) *mix {
	return &mix{Rand: rand.New(rand.NewPCG(seed, 1)), d: newDuel(), cluster: cluster}
}

func playHistories(t *testing.T, cluster bool) {
	seed := seedOf(t)
	played, cut := 0, 0
	for s := seed; s < seed+uint64(*histories); s++ {
		m := newMix(s, cluster)
		lines, err := m.play()
		if err != nil {
			if *shrinking {
				lines, err = shrink(lines, err)
			}
			t.Fatalf("seed %d:\n%s\n\n%v", s, strings.Join(lines, "\n"), err)
		}
		played += len(lines)
		if m.d.over {
			cut++
		}
	}
	t.Logf("%d lines played; %d histories ended early at coinciding deadlines", played, cut)
}

// TestHistoriesAlone holds the table to the reference in single mode.
func TestHistoriesAlone(t *testing.T) { playHistories(t, false) }

// TestHistoriesDelayed does so with records that commit later, are refused, or are lost with the leadership.
func TestHistoriesDelayed(t *testing.T) { playHistories(t, true) }
