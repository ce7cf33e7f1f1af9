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
	return nodes, leader, stop
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

// reply is the kind of the next one that answers something, or the end of the stream.
func (c *talker) reply() (codec.Kind, error) {
	c.t.Helper()
	var r codec.Reply
	err := c.read(func(b []byte) (int, bool, error) {
		n, err := c.wire.DecodeReply(b, &r)
		return n, n > 0 && r.Kind != 0 && r.Kind != codec.Notice, err
	})
	return r.Kind, err
}

// PROTOCOL.md section 6: a leader that has heard from no majority for longer than its leader lease writes no grant, not
// even one that is committed. Here the followers end between the commit of a grant and its turn to be written.
func TestALeaderThatHearsNobodyWritesNoGrant(t *testing.T) {
	nodes, leader, stop := trio(t)
	var clients []*talker
	for at, wire := range map[string]codec.ClientWire{
		leader.settings.Bind: codec.ClientV1, leader.settings.ListenV3: codec.ClientV3,
		leader.settings.Listen03: codec.ClientV03, leader.settings.Listen01: codec.ClientV01,
	} {
		c := talkTo(t, leader, wire, at)
		c.acquire(1, "before"+wire.Name())
		if kind, err := c.reply(); kind != codec.Granted || err != nil {
			t.Fatalf("wire %s: with a majority at hand: kind %d (%v), want a grant", wire.Name(), kind, err)
		}
		clients = append(clients, c)
	}
	asked, write := make(chan struct{}), make(chan struct{})
	var once sync.Once
	leader.apply.call(func() { // whoever asks has had the turn after this, or a reply from one who has
		muted := leader.host.muted
		leader.host.muted = func() bool {
			once.Do(func() { close(asked) })
			<-write
			return muted != nil && muted()
		}
	})
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
	kind, err := c.reply()
	if c.wire == codec.ClientV3 {
		if kind != codec.LostProposed {
			t.Errorf("wire 3: kind %d (%v), want I", kind, err)
		}
		return
	}
	if kind == codec.Moved {
		_, err = c.reply()
	}
	if kind == codec.Granted || !errors.Is(err, io.EOF) {
		t.Errorf("wire %s: kind %d (%v), want no grant and the end", c.wire.Name(), kind, err)
	}
}
