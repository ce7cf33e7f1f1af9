package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/codec"
)

// clusterLimit is how long a cluster of three may take to form, to elect or to lose its leader on a busy machine.
const clusterLimit = 60 * time.Second

// await polls until ok holds, or fails the test with what.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(clusterLimit)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", clusterLimit, what)
		}
		<-tick.C
	}
}

// portPairs finds n ports of loopback whose next one is free as well, below those that the system gives away.
func portPairs(t *testing.T, n int) (ports []int) {
	t.Helper()
	free := func(p int) bool {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			return false
		}
		return l.Close() == nil
	}
	for p := 10000 + os.Getpid()*7919%20000; p < 32000 && len(ports) < n; p += 2 {
		if free(p) && free(p+1) {
			ports = append(ports, p)
		}
	}
	if len(ports) < n {
		t.Fatal("no free ports")
	}
	return ports
}

// trio is a cluster of three in this process, with all wires on and one loop a node, that has formed itself. stop stops a
// node before the end of the test.
func trio(t *testing.T) (nodes []*Server, leader *Server, stop func(*Server)) {
	t.Helper()
	stopped := map[*Server]bool{}
	stop = func(s *Server) {
		if !stopped[s] {
			stopped[s] = true
			s.Stop()
		}
	}
	var members []string
	for _, p := range portPairs(t, 3) {
		members = append(members, fmt.Sprintf("127.0.0.1:%d", p))
	}
	for _, at := range members {
		settings, _, err := Load(nil, []string{
			"BIND=" + at, "LISTEN_V3=127.0.0.1:0", "LISTEN_0_3=127.0.0.1:0", "LISTEN_0_1=127.0.0.1:0",
			"ADVERTISE_0_3=" + at, "ADVERTISE_0_1=" + at, "ADMIN_BIND=", "EVENT_LOOPS=1", "GRACE=0", "FORM=auto",
			"CLUSTER=" + strings.Join(members, ","), "PEER_PORT_OFFSET=1", "ELECTION_MS=2000",
			"MAX_KEYS=5", // of a node alone
		})
		if err != nil {
			t.Fatal(err)
		}
		s, err := Start(settings, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stop(s) })
		nodes = append(nodes, s)
	}
	return nodes, leaderOfAll(t, nodes), stop
}

// leaderOfAll waits until one of these nodes serves.
func leaderOfAll(t *testing.T, nodes []*Server) (leader *Server) {
	t.Helper()
	await(t, "a leader that serves", func() bool {
		for _, s := range nodes {
			s.apply.call(func() {
				if s.apply.table.Leading() {
					leader = s
				}
			})
		}
		return leader != nil
	})
	return leader
}

// talker is a client on one wire of a server, authenticated.
type talker struct {
	t    *testing.T
	wire codec.ClientWire
	conn net.Conn
	buf  []byte
}

func talkTo(t *testing.T, s *Server, wire codec.ClientWire, addr string) *talker {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(2 * clusterLimit))
	c := &talker{t: t, wire: wire, conn: conn}
	hello := codec.Challenge{}
	_, _, hello.Fingerprint, _ = s.identity()
	err = c.read(func(b []byte) (n int, done bool, err error) {
		if n, err = wire.DecodeChallenge(b, &hello); n > 0 {
			c.send(wire.AppendLogin(nil, nil, &hello))
		}
		return n, n > 0, err
	})
	if err == nil {
		err = c.read(wire.DecodeOutcome)
	}
	if err != nil {
		t.Fatalf("handshake on wire %s: %v", wire.Name(), err)
	}
	return c
}

// talkers is one client on each wire.
func talkers(t *testing.T, s *Server) []*talker {
	t.Helper()
	return []*talker{
		talkTo(t, s, codec.ClientV1, s.settings.Bind), talkTo(t, s, codec.ClientV3, s.settings.ListenV3),
		talkTo(t, s, codec.ClientV03, s.settings.Listen03), talkTo(t, s, codec.ClientV01, s.settings.Listen01),
	}
}

// read reads until decode is done; the error is the end of the stream before that.
func (c *talker) read(decode func(b []byte) (n int, done bool, err error)) error {
	c.t.Helper()
	for {
		n, done, err := decode(c.buf)
		if err != nil {
			c.t.Fatalf("wire %s: %q: %v", c.wire.Name(), c.buf, err)
		}
		c.buf = c.buf[n:]
		switch {
		case done:
			return nil
		case n > 0:
			continue
		}
		more := make([]byte, 4096)
		if n, err = c.conn.Read(more); err != nil {
			return err
		}
		c.buf = append(c.buf, more[:n]...)
	}
}

func (c *talker) send(b []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatalf("wire %s: %v", c.wire.Name(), err)
	}
}

func (c *talker) acquire(id uint64, key string) {
	c.t.Helper()
	c.send(c.wire.AppendAcquire(nil, id, 1, 60, []byte(key)))
}

// reply is the next one that answers something, without its key, or the end of the stream.
func (c *talker) reply() (r codec.Reply, err error) {
	c.t.Helper()
	err = c.read(func(b []byte) (int, bool, error) {
		n, err := c.wire.DecodeReply(b, &r)
		return n, n > 0 && r.Kind != 0 && r.Kind != codec.Notice, err
	})
	r.Key = nil // lent
	return r, err
}

// want reads a reply, which must be of that kind, and returns its token.
func (c *talker) want(kind codec.Kind, id uint64) uint64 {
	c.t.Helper()
	r, err := c.reply()
	if c.wire == codec.ClientV01 { // which has no id, and no B
		id = 0
		if kind == codec.Busy {
			kind = codec.TimedOut
		}
	}
	if err != nil || r.Kind != kind || r.ID != id {
		c.t.Fatalf("wire %s: kind %d for %d (%v), want kind %d for %d", c.wire.Name(), r.Kind, r.ID, err, kind, id)
	}
	return r.Token
}

// PROTOCOL.md section 6: a leader that has heard from no majority for longer than its leader lease writes no grant, not
// even one that is committed. Here the followers end between the commit of a grant and its turn to be written.
func TestALeaderThatHearsNobodyWritesNoGrant(t *testing.T) {
	nodes, leader, stop := trio(t)
	asked, write := make(chan struct{}), make(chan struct{})
	var holding atomic.Bool
	var once sync.Once
	leader.apply.call(func() { // nobody has been granted anything, and whoever will be asks after somebody had the turn
		muted := leader.host.muted
		leader.host.muted = func() bool {
			if holding.Load() {
				once.Do(func() { close(asked) })
				<-write
			}
			return muted != nil && muted()
		}
	})
	clients := talkers(t, leader)
	for _, c := range clients {
		c.acquire(1, "before"+c.wire.Name())
		c.want(codec.Granted, 1)
	}
	holding.Store(true)
	for _, c := range clients {
		c.acquire(2, "after"+c.wire.Name())
	}
	select {
	case <-asked:
	case <-time.After(clusterLimit):
		t.Fatal("no grant was committed, or the loop wrote it without asking")
	}
	await(t, "all grants are committed", func() bool {
		granted := uint64(0)
		leader.apply.call(func() { granted = leader.apply.table.Counts().Grants })
		return granted == 8
	})
	for _, s := range nodes {
		if s != leader {
			stop(s)
		}
	}
	await(t, "the leader lease is over", func() bool { return !leader.node.HeardMajority() })
	close(write)
	for _, c := range clients {
		wantNoGrant(t, c)
	}
}

// wantNoGrant reads the Indeterminate of a wire: the end of the stream, or, on wire 3, its word for it.
func wantNoGrant(t *testing.T, c *talker) {
	t.Helper()
	if c.wire == codec.ClientV3 {
		c.want(codec.LostProposed, 2)
		return
	}
	r, err := c.reply()
	if r.Kind == codec.Moved {
		_, err = c.reply()
	}
	if r.Kind == codec.Granted || !errors.Is(err, io.EOF) {
		t.Errorf("wire %s: kind %d (%v), want no grant and the end", c.wire.Name(), r.Kind, err)
	}
}

// keysOf is a set of 16 keys that no other number has, as Request has it.
func keysOf(n int) (set []byte) {
	for i := range 16 {
		set = append(set, 6)
		set = fmt.Appendf(set, "%04d%02d", n, i)
	}
	return set
}

// handOver stops the leader and returns the next one. PROTOCOL.md section 7: by the time of its goodbye to its clients
// leadership has been handed over, and nobody has to find out that it is gone.
func handOver(t *testing.T, leader *Server, rest []*Server, stop func(*Server)) *Server {
	t.Helper()
	c := talkTo(t, leader, codec.ClientV1, leader.settings.Bind)
	term := leader.node.Status().Term
	done := make(chan struct{})
	go func() { // ends with Stop
		stop(leader)
		close(done)
	}()
	if r, err := c.reply(); err != nil || r.Kind != codec.NotActive {
		t.Fatalf("the goodbye is kind %d (%v), want not_active", r.Kind, err)
	}
	if a, b := rest[0].node.Status().Term, rest[1].node.Status().Term; max(a, b) == term {
		t.Error("goodbye before leadership was handed over")
	}
	<-done
	return leaderOfAll(t, rest)
}

// acquireSets has a client of wire 3 acquire that many sets, and returns their tokens.
func acquireSets(c *talker, sets int) (tokens []uint64) {
	c.t.Helper()
	for sent := 0; len(tokens) < sets; {
		for ; sent < sets && sent < len(tokens)+100; sent++ {
			c.send(c.wire.AppendRequest(nil, &codec.Request{
				Op: codec.Acquire, Flags: codec.AsSet, ID: uint64(1 + sent), Lease: 250 * time.Second, Set: keysOf(sent),
			}))
		}
		tokens = append(tokens, c.want(codec.Granted, uint64(1+len(tokens))))
	}
	return tokens
}

// releaseSets gives the sets from one number to another back.
func releaseSets(c *talker, tokens []uint64, from, to int) {
	c.t.Helper()
	for i := from; i < to; i++ {
		c.send(c.wire.AppendRequest(nil, &codec.Request{
			Op: codec.Release, Flags: codec.AsSet, ID: uint64(1 + i), Token: tokens[i], Set: keysOf(i),
		}))
		c.want(codec.Released, uint64(1+i))
	}
}

// PROTOCOL.md section 5: a cluster has 65,536 keys at most, whatever MAX_KEYS says. From 90 % of them on, 58,982, a new key
// gets the definite no of its wire; from below 75 %, 49,152, on it is granted again. The limit is the leader's own: all
// nodes have all keys, and the next leader refuses likewise.
func TestKeysOfACluster(t *testing.T) {
	nodes, leader, stop := trio(t)
	c := talkTo(t, leader, codec.ClientV3, leader.settings.ListenV3)
	const sets, singles = 3686, 6
	tokens := acquireSets(c, sets)
	everyone := func(s *Server, kind codec.Kind) {
		t.Helper()
		for _, c := range talkers(t, s) {
			c.acquire(1, "new"+c.wire.Name())
			c.want(kind, 1)
		}
	}
	var single [singles]uint64
	for i := range single {
		c.acquire(1, fmt.Sprint("single", i))
		single[i] = c.want(codec.Granted, 1)
	}
	everyone(leader, codec.Busy)
	var rest []*Server
	for _, s := range nodes {
		await(t, "all keys are on all nodes", func() bool {
			held := 0
			s.apply.call(func() { held = s.apply.table.Counts().Keys })
			return held == 16*sets+singles
		})
		if s != leader {
			rest = append(rest, s)
		}
	}
	leader = handOver(t, leader, rest, stop)
	everyone(leader, codec.Busy)
	c = talkTo(t, leader, codec.ClientV3, leader.settings.ListenV3)
	for i, token := range single {
		c.send(c.wire.AppendRelease(nil, 1, token, fmt.Append(nil, "single", i)))
		c.want(codec.Released, 1)
	}
	releaseSets(c, tokens, 0, 614)
	everyone(leader, codec.Busy) // 49,152 keys
	releaseSets(c, tokens, 614, 615)
	everyone(leader, codec.Granted)
}

// CLUSTER.md: a grace is as long as the longest lease that a listener admits: 250 s on v1 and wire 3, 65,535 s as soon as
// 0.3 or 0.1 is on.
func TestLongestLeaseOfTheListeners(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		want     time.Duration
	}{
		{Settings{Bind: "127.0.0.1:1"}, 250 * time.Second},
		{Settings{ListenV3: "127.0.0.1:1"}, 250 * time.Second},
		{Settings{Bind: "127.0.0.1:1", Listen03: "127.0.0.1:2"}, 65535 * time.Second},
		{Settings{ListenV3: "127.0.0.1:1", Listen01: "127.0.0.1:2"}, 65535 * time.Second},
	} {
		if got := (&Server{settings: c.settings}).longestLease(); got != c.want {
			t.Errorf("listeners %v: %v, want %v", c.settings.Listeners(), got, c.want)
		}
	}
}
