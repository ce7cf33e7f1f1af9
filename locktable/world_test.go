package locktable_test

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ticketing-go/ticketing/locktable"
)

// The delayed world: three tables over a model of Raft, with event loops, connections and clients around them. Its
// steps are in world_steps_test.go, what must hold in world_check_test.go.

const (
	worldNodes, worldLoops, worldClients, majority = 3, 2, 4, 2
	worldRecords                                   = 3 // in flight; few, so that batches have to wait

	// Clocks run apart by up to 250 ppm either way, so that two differ by at most the 500 ppm of CLUSTER.md.
	drift = 0.00025
)

type wire int

const (
	wire1 wire = iota
	wire03
	wire3
)

// worldConn is a connection: open as its client sees it, served as the server's loop does.
type worldConn struct {
	session      locktable.Session
	order        int
	client       *worldClient
	node         *worldNode
	c2s          []worldCommand
	s2c          []worldAnswer
	open, served bool
	asked        map[int]*worldOp  // acquires unanswered on this connection
	releases     []locktable.Token // releases unanswered on this connection
}

func (c *worldConn) loop() int { return int(c.session >> 56) }

// worldCommand is what a loop puts into its ring for the table.
type worldCommand struct {
	what    string // acquire, release, gone, undelivered
	conn    *worldConn
	op      *worldOp
	session locktable.Session
	key     string
	keys    locktable.KeySet
	token   locktable.Token
}

type worldAnswer struct {
	session locktable.Session
	kind    locktable.Kind // 0: moved
	id      uint64
	token   locktable.Token
	key     string
	acquire bool
}

type opState int

const (
	asked opState = iota
	held
	resend
	done
	no
	unknown
	gone
)

// worldOp is one acquire of a client. Its lease, unlike any other's, names it in the log.
type worldOp struct {
	uid      int
	client   *worldClient
	keys     locktable.KeySet
	wait     time.Duration
	lease    time.Duration
	sent     time.Duration
	state    opState
	token    locktable.Token
	until    time.Duration
	floor    locktable.Token
	copies   int
	released locktable.Token
	denied   bool
	order    int // of its only copy, when a table took it
}

func (o *worldOp) believes() bool {
	return o.state == held && o.client.alive && o.client.clock < o.until
}

type worldClient struct {
	id    int
	wire  wire
	clock time.Duration
	rate  float64
	alive bool
	conns []*worldConn
	ops   []*worldOp
	seen  locktable.Token
}

type worldNode struct {
	id        int
	raft      raft
	table     *locktable.Table
	by        locktable.Proposer
	starting  bool
	applied   int
	clock     time.Duration
	rate      float64
	paused    bool
	boots     byte
	rings     [worldLoops][]worldCommand
	out       [worldLoops][]worldAnswer
	conns     []*worldConn
	slots     [worldLoops][]uint32 // generation by slot
	free      [worldLoops][]int
	snapAt    int
	snapshot  []byte
	resolving bool // a record was refused since the last commit or notice
}

type broken string

func must(ok bool, format string, args ...any) {
	if !ok {
		panic(broken(fmt.Sprintf(format, args...)))
	}
}

type world struct {
	nodes   []*worldNode
	clients []*worldClient
	graves  []*worldClient
	conns   []*worldConn // those whose server side is open
	orders  int
	boots   int
	ops     []*worldOp
	checker
	played map[string]int
}

func newWorld(rates []float64) *world {
	w := &world{played: map[string]int{}}
	w.checker.init()
	for i := range worldNodes {
		n := &worldNode{id: i, rate: 1 + drift*rates[i]}
		n.raft.id = i
		n.raft.restart()
		w.boot(n)
		n.snapshot = n.table.Snapshot(nil)
		w.nodes = append(w.nodes, n)
	}
	for i := range worldClients {
		w.clients = append(w.clients, w.client(i, 1+drift*rates[worldNodes+i]))
	}
	return w
}

func (w *world) client(i int, rate float64) *worldClient {
	return &worldClient{id: i, wire: []wire{wire1, wire03, wire3, wire3}[i], rate: rate, alive: true}
}

// boot starts a node's process: a fresh incarnation, with what its snapshot and its log hold.
func (w *world) boot(n *worldNode) {
	n.boots++
	n.by = locktable.Proposer{Incarnation: [16]byte{byte(n.id) + 1, n.boots}}
	limits := locktable.Limits{MaxKeys: 1000, MaxWaiters: 100, MaxTotalWaiters: 100, MaxRecords: worldRecords, MaxEntries: 2}
	n.table = locktable.New(limits, 1, sinkFunc(func(r *locktable.Reply) { w.reply(n, r) }))
	if n.snapshot != nil {
		must(n.table.Restore(n.clock, n.snapshot) == nil, "6: a snapshot cannot be restored")
	}
	n.applied, n.starting, n.paused, n.conns = n.snapAt, false, false, nil
	n.rings, n.out = [worldLoops][]worldCommand{}, [worldLoops][]worldAnswer{}
	n.slots, n.free = [worldLoops][]uint32{}, [worldLoops][]int{}
}

func (w *world) reply(n *worldNode, r *locktable.Reply) {
	if r.Kind == locktable.Left {
		return
	}
	a := worldAnswer{session: r.Session, kind: r.Kind, id: r.ID, token: r.Token, key: string(r.Key),
		acquire: r.ID < releaseIDs}
	n.out[r.Session>>56] = append(n.out[r.Session>>56], a)
}

// releaseIDs are the ids of releases: token and this.
const releaseIDs = 1 << 32

// pump is what the apply goroutine does after each turn: records go to Raft, and the table is looked over.
func (w *world) pump(n *worldNode) {
	if n.table.Leading() {
		for r := n.table.Propose(n.clock); r != nil; r = n.table.Propose(n.clock) {
			p := &proposal{by: r.By, seq: r.Seq, advance: r.Advance, bytes: locktable.AppendRecord(nil, r)}
			n.raft.inbox = append(n.raft.inbox, p)
		}
	}
	if n.table.Counts().RecordsInFlight == worldRecords { // no revoke can be proposed
		for token := range w.unread {
			w.unread[token] = n.clock
		}
	}
	if err := n.table.Check(); err != nil {
		must(false, "5: %v", err)
	}
}

// apply gives a node the next committed record.
func (w *world) apply(n *worldNode) {
	p := n.raft.log[n.applied].p
	n.applied++
	if p != nil {
		var r locktable.Record
		bytes := slices.Clone(p.bytes)
		must(locktable.DecodeRecord(bytes, &r) == nil, "6: record unreadable: %x", p.bytes)
		n.table.Commit(n.clock, &r)
		if p.by == n.by && p.seq == 0 {
			n.starting = false
		}
		for i := range bytes {
			bytes[i] = 0xdb
		}
	}
	w.committed(n, p)
	w.pump(n)
}

// take is the apply goroutine taking one command from a ring.
func (w *world) take(n *worldNode, c worldCommand) {
	t := n.table
	switch c.what {
	case "acquire":
		if !t.Leading() {
			w.moved(n, c.session, uint64(c.op.uid), 0)
			return
		}
		w.orders++
		c.op.order = w.orders
		a := &locktable.Acquire{Session: c.session, ID: uint64(c.op.uid), Keys: slices.Clone(c.op.keys), Wait: c.op.wait,
			Lease: c.op.lease}
		if c.op.client.wire == wire03 {
			a.Flags = locktable.Idempotent
		}
		t.Acquire(n.clock, a)
		for i := range a.Keys { // the table must have copied what it keeps
			a.Keys[i] = 0xdb
		}
	case "release":
		if !t.Leading() {
			w.moved(n, c.session, releaseIDs+uint64(c.token), c.token)
			return
		}
		t.Release(n.clock, &locktable.Release{Session: c.session, ID: releaseIDs + uint64(c.token), Token: c.token,
			Keys: slices.Clone(c.keys)})
	case "gone":
		t.Leave(n.clock, c.session, false)
	case "undelivered":
		t.Undelivered(n.clock, c.session, []byte(c.key), c.token)
		w.undelivered(n, c)
	}
}

func (w *world) moved(n *worldNode, s locktable.Session, id uint64, token locktable.Token) {
	n.out[s>>56] = append(n.out[s>>56], worldAnswer{session: s, id: id, token: token, acquire: id < releaseIDs})
}

// write is a loop handing an answer to a socket, or finding it closed.
func (w *world) write(n *worldNode, a worldAnswer) {
	var conn *worldConn
	for _, c := range n.conns {
		if c.session == a.session && c.served {
			conn = c
		}
	}
	switch {
	case conn == nil && a.kind == locktable.Granted:
		loop := a.session >> 56
		n.rings[loop] = append(n.rings[loop], worldCommand{what: "undelivered", session: a.session, key: a.key, token: a.token})
	case conn == nil:
	case a.kind == locktable.LostProposed, a.kind == locktable.LostQueued && (conn.client.wire == wire03 || !a.acquire):
		w.hangUp(conn)
	default:
		conn.s2c = append(conn.s2c, a)
	}
}

// hangUp is the server closing a connection. What is in its socket's buffer may still reach the client.
func (w *world) hangUp(conn *worldConn) {
	if conn.served {
		conn.served = false
		n, loop := conn.node, conn.loop()
		n.rings[loop] = append(n.rings[loop], worldCommand{what: "gone", session: conn.session})
		n.free[loop] = append(n.free[loop], int(conn.session>>32)&(1<<24-1))
		n.conns = remove(n.conns, conn)
	}
	w.conns = remove(w.conns, conn)
}

func (w *world) connect(c *worldClient, n *worldNode, loop int) *worldConn {
	slot := len(n.slots[loop])
	if k := len(n.free[loop]); k > 0 {
		slot = n.free[loop][k-1]
		n.free[loop] = n.free[loop][:k-1]
	} else {
		n.slots[loop] = append(n.slots[loop], 0)
	}
	n.slots[loop][slot]++
	w.orders++
	conn := &worldConn{session: session(loop, slot, int(n.slots[loop][slot])), order: w.orders, client: c, node: n,
		open: true, served: true, asked: map[int]*worldOp{}}
	c.conns = append(c.conns, conn)
	n.conns = append(n.conns, conn)
	w.conns = append(w.conns, conn)
	return conn
}

func (w *world) send(op *worldOp, conn *worldConn) {
	op.copies++
	conn.asked[op.uid] = op
	conn.c2s = append(conn.c2s, worldCommand{what: "acquire", conn: conn, op: op, session: conn.session})
}

func (c *worldConn) release(op *worldOp) {
	c.c2s = append(c.c2s, worldCommand{what: "release", conn: c, session: c.session, token: op.token, keys: op.keys})
	c.releases = append(c.releases, op.token)
}

// brokenOff is the client's side of a connection ending: unread answers are lost, frames sent may still arrive.
func (w *world) brokenOff(conn *worldConn) {
	conn.open, conn.s2c = false, nil
	for _, op := range conn.asked {
		if op.state == asked {
			op.state = unknown
			if op.client.wire == wire03 {
				op.state = resend
			}
		}
	}
	conn.asked = map[int]*worldOp{}
}

const waitForever = time.Duration(math.MaxInt64)
