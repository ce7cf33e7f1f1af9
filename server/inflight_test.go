package server

import (
	"bufio"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/codec"
	"github.com/ticketing-go/ticketing/locktable"
)

// valve is a committer that commits at once while it is open, and else keeps records until the test commits them, as a
// cluster does whose followers do not answer. Under the turn.
type valve struct {
	alone
	heldRecords
	open bool
	most int // entries in one record
}

func (v *valve) propose(now time.Duration, r *locktable.Record) {
	v.most = max(v.most, len(r.Entries))
	if v.open {
		v.alone.propose(now, r)
		return
	}
	v.heldRecords.propose(now, r)
}

// valved is a node alone, on sockets, with all wires on, and its committer, open.
func valved(t *testing.T) (*Server, *valve) {
	t.Helper()
	settings, _, err := Load(nil, []string{
		"BIND=127.0.0.1:0", "LISTEN_V3=127.0.0.1:0", "LISTEN_0_3=127.0.0.1:0", "LISTEN_0_1=127.0.0.1:0", "ADMIN_BIND=127.0.0.1:0",
		"EVENT_LOOPS=2",
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(settings, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	v := &valve{alone: alone{s.apply.table}, open: true}
	s.apply.call(func() { s.apply.commit = v })
	t.Cleanup(func() {
		for v.commitOne(s) { // or Stop waits for it
		}
		s.Stop()
	})
	return s, v
}

func (v *valve) turn(s *Server, open bool) { s.apply.call(func() { v.open = open }) }

// commitOne commits the oldest record that is kept, and says whether there was one.
func (v *valve) commitOne(s *Server) (did bool) {
	s.apply.call(func() {
		if did = len(v.records) > 0; did {
			r := v.records[0]
			v.records = v.records[1:]
			s.apply.table.Commit(s.apply.now(), r)
		}
	})
	return did
}

// shows reads metrics from the admin page, by their names without the prefix.
func shows(t *testing.T, s *Server, names ...string) (values []float64) {
	t.Helper()
	resp, err := http.Get("http://" + s.admin.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if at := strings.LastIndexByte(lines.Text(), ' '); at > 0 {
			page[lines.Text()[:at]], _ = strconv.ParseFloat(lines.Text()[at+1:], 64) // a comment is no metric
		}
	}
	for _, name := range names {
		v, ok := page[metricPrefix+name]
		if !ok {
			t.Fatalf("no metric %s", name)
		}
		values = append(values, v)
	}
	return values
}

func awaitMetrics(t *testing.T, s *Server, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		await(t, fmt.Sprintf("%s is %v", name, v), func() bool { return shows(t, s, name)[0] == v })
	}
}

// collect counts the replies of a client by kind, n in all.
func (c *talker) collect(n int) map[codec.Kind]int {
	c.t.Helper()
	kinds := map[codec.Kind]int{}
	for range n {
		r, err := c.reply()
		if err != nil {
			c.t.Fatalf("wire %s: after %v: %v", c.wire.Name(), kinds, err)
		}
		kinds[r.Kind]++
	}
	return kinds
}

// PROTOCOL.md section 5: acquires in flight, by four wires on two loops. From 3,686 on an acquire gets the definite no at
// once, until less than 3,072 are left; releases have a lane of their own; the metrics say so.
func TestAcquiresInFlight(t *testing.T) {
	s, v := valved(t)
	clients := talkers(t, s)
	c := clients[0]
	c.acquire(1, "held")
	token := c.want(codec.Granted, 1)
	v.turn(s, false)
	const each, in, opensBelow = 1000, 3686, 3072
	for _, c := range clients {
		var b []byte
		for i := range each {
			b = c.wire.AppendAcquire(b, uint64(10+i), 1, 250, fmt.Append(nil, c.wire.Name(), "-", i))
		}
		c.send(b)
	}
	awaitMetrics(t, s, map[string]float64{
		`in_flight{kind="acquire"}`: in, `busy_total{reason="in_flight"}`: 4*each - in, `gate_closed{gate="acquires"}`: 1,
	})
	recordsAtOnce(t, s, v)
	c.send(c.wire.AppendRelease(nil, 1, token, []byte("held"))) // is taken, behind all that
	awaitMetrics(t, s, map[string]float64{`in_flight{kind="release"}`: 1})

	probe := talkTo(t, s, codec.ClientV3, s.settings.ListenV3)
	id, turnedAway := uint64(0), 0
	left := float64(in)
	for left >= opensBelow {
		id++
		probe.acquire(id, fmt.Sprint("probe", id))
		probe.want(codec.Busy, id)
		turnedAway++
		if closed := shows(t, s, `gate_closed{gate="acquires"}`)[0]; closed != 1 {
			t.Fatalf("the gate is open with %v in flight", left)
		}
		if !v.commitOne(s) {
			t.Fatalf("with %v in flight no record is", left)
		}
		left = shows(t, s, `in_flight{kind="acquire"}`)[0]
	}
	awaitMetrics(t, s, map[string]float64{`gate_closed{gate="acquires"}`: 0})
	probe.acquire(id+1, "probe")
	awaitMetrics(t, s, map[string]float64{`in_flight{kind="acquire"}`: left + 1, `busy_total{reason="in_flight"}`: float64(4*each - in + turnedAway)})
	for v.commitOne(s) {
	}
	probe.want(codec.Granted, id+1)
	recordsAtOnce(t, s, v)
	total := map[codec.Kind]int{}
	for _, c := range clients {
		n := each
		if c == clients[0] {
			n++
		}
		for kind, n := range c.collect(n) {
			if kind == codec.TimedOut && c.wire == codec.ClientV01 {
				kind = codec.Busy
			}
			total[kind] += n
		}
	}
	if total[codec.Granted] != in || total[codec.Busy] != 4*each-in || total[codec.Released] != 1 {
		t.Errorf("replies by kind %v, want %d grants, %d B and the release", total, in, 4*each-in)
	}
	awaitMetrics(t, s, map[string]float64{`in_flight{kind="acquire"}`: 0, `in_flight{kind="release"}`: 0})
	// Up to 256 replies fell due at once for one connection: 64 in one write at most, and that often.
	runs := shows(t, s, `write_replies_bucket{le="32"}`, `write_replies_bucket{le="64"}`, "write_replies_count")
	if runs[0] >= runs[1] || runs[1] != runs[2] {
		t.Errorf("of %v writes %v had 64 replies at most and %v half of that, want all, and less", runs[2], runs[1], runs[0])
	}
}

// recordsAtOnce checks what waits for a commit: 8 records in flight at most, and never more than 256 entries in one.
func recordsAtOnce(t *testing.T, s *Server, v *valve) {
	t.Helper()
	s.apply.call(func() {
		if len(v.records) > 8 || v.most > 256 {
			t.Errorf("%d records in flight, %d entries in one; want 8 and 256 at most", len(v.records), v.most)
		}
	})
}

// Releases in flight: from 512 on a connection with a further one is not read, the others' acquires go on, and in the end
// every release has been answered, in the order of its connection.
func TestReleasesInFlight(t *testing.T) {
	s, v := valved(t)
	var clients []*talker
	const each, in = 400, 512
	for range 2 {
		clients = append(clients, talkers(t, s)[:3]...) // not 0.1: its replies do not tell one release from another
	}
	tokens := make([][]uint64, len(clients))
	for at, c := range clients {
		for i := range each {
			c.acquire(uint64(1+i), fmt.Sprint(at, "-", i))
			tokens[at] = append(tokens[at], c.want(codec.Granted, uint64(1+i)))
		}
	}
	probe := talkTo(t, s, codec.ClientV1, s.settings.Bind)
	probe.acquire(1, "mine")
	probe.want(codec.Granted, 1)
	v.turn(s, false)
	for at, c := range clients {
		var b []byte
		for i, token := range tokens[at] {
			b = c.wire.AppendRelease(b, uint64(1+i), token, fmt.Append(nil, at, "-", i))
		}
		c.send(c.wire.AppendAcquire(b, 1000, 1, 60, fmt.Append(nil, "behind", at)))
	}
	awaitMetrics(t, s, map[string]float64{`in_flight{kind="release"}`: in})
	await(t, "connections that are not read", func() bool { return shows(t, s, "release_pauses_total")[0] >= 1 })
	probe.send(probe.wire.AppendAcquire(nil, 2, 0, 60, []byte("mine"))) // is decided as if nothing were
	probe.want(codec.TimedOut, 2)
	awaitMetrics(t, s, map[string]float64{`in_flight{kind="release"}`: in, `busy_total{reason="in_flight"}`: 0})

	done := make(chan struct{})
	go func() { // ends when all is answered, or the test has failed
		for {
			select {
			case <-done:
				return
			default:
				v.commitOne(s)
			}
		}
	}()
	defer close(done)
	for at, c := range clients {
		for i, token := range tokens[at] {
			r, err := c.reply()
			if err != nil || r.Kind != codec.Released || r.ID != 0 && r.ID != uint64(1+i) || r.Token != 0 && r.Token != token {
				t.Fatalf("wire %s, release %d of token %d: %v (%v)", c.wire.Name(), i, token, r, err)
			}
		}
		c.want(codec.Granted, 1000)
	}
	awaitMetrics(t, s, map[string]float64{`in_flight{kind="release"}`: 0, "releases_total": float64(each * len(clients)), "not_held_total": 0})
	if slow := shows(t, s, `connections_closed_total{reason="slow"}`)[0]; slow != 0 {
		t.Errorf("%v connections closed as slow for a pause", slow)
	}
}
