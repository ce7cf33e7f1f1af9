// Package session is the client of the drills: v1 sessions that pipeline, and that write into a history what happened to
// every request. It decides when an outcome counts as unknown, and refuses to know what the service should have
// answered. A Session may be used by any number of goroutines; one goroutine of its own reads.
package session

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ticketing-go/ticketing/bench/history"
	"github.com/ticketing-go/ticketing/codec"
)

const writeTimeout = 2 * time.Second

// ErrClosed says that a session has ended before a request was written.
var ErrClosed = errors.New("session: closed")

// ErrAuth says that the server did not take the token.
var ErrAuth = errors.New("session: auth_failed")

// owners makes every owner of the process another one, so that an answer cannot be taken for that of another session.
var owners atomic.Uint64

// ids numbers the sessions of the process.
var ids atomic.Int32

// Hints is told what servers say about the leader: the client address, or "" if there is none.
type Hints func(leader string)

// Dialer is what sessions have in common.
type Dialer struct {
	Token string
	Log   *history.Recorder
	Hints Hints
	// Settle is how long a session is watched after its first M or E. Closed within that time: a request that a lost
	// leadership left open was answered so, and all are unknown. Open: each M or E answered one request, which had no
	// effect. Nothing more is sent meanwhile, and the session ends with it. 0: what is under way is unknown at once, and
	// the session goes on; for those who have one request under way at a time.
	Settle time.Duration
	// Patience bounds the dial and the handshake, each.
	Patience time.Duration
	// Overdue is how long after the end of its wait (releases: after the call) a request may stay unanswered. Then the
	// session is given up.
	Overdue time.Duration
}

// Session is one authenticated connection.
type Session struct {
	ID   int32
	Node int32 // names the process that was dialled

	*Dialer
	conn net.Conn
	gone chan struct{} // closed when the session has ended

	mu       sync.Mutex
	acquires map[uint64]*Call
	releases map[string][]*Call
	noops    map[string]*Call
	out      []byte
	ended    bool
	refusals int
}

// Call is a request under way.
type Call struct {
	// Done is closed when Op has its outcome. Queued is closed when an acquire is known to be queued or decided.
	Done, Queued chan struct{}
	Op           history.Op // valid once Done is closed

	s     *Session
	timer *time.Timer
}

// Dial opens a session with the process at addr, which node names. It waits for the challenge, and not for the token to be
// accepted: servers say nothing to a right answer.
func (d *Dialer) Dial(addr string, node int32) (*Session, error) {
	conn, err := net.DialTimeout("tcp", addr, d.Patience)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(d.Patience))
	rest, err := login(conn, d.Token)
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	s := &Session{ID: ids.Add(1), Node: node, Dialer: d, conn: conn, gone: make(chan struct{}),
		acquires: map[uint64]*Call{}, releases: map[string][]*Call{}, noops: map[string]*Call{}}
	// Ends with the connection, which Close closes.
	go s.read(rest)
	return s, nil
}

// login answers the challenge and returns what came behind it.
func login(conn net.Conn, token string) (rest []byte, err error) {
	buf := make([]byte, 0, 4096)
	var c codec.Challenge
	for {
		n, err := codec.ClientV1.DecodeChallenge(buf, &c)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			rest = append(rest, buf[n:]...)
			break
		}
		got, err := conn.Read(buf[len(buf):cap(buf)])
		if err != nil {
			return nil, err
		}
		buf = buf[:len(buf)+got]
	}
	_, err = conn.Write(codec.ClientV1.AppendLogin(nil, []byte(token), &c))
	return rest, err
}

// Gone is closed when the session has ended.
func (s *Session) Gone() <-chan struct{} { return s.gone }

// Close ends the session: what is under way is unknown.
func (s *Session) Close() { s.end(nil, history.Unknown) }

// Acquire sends an acquire and, with probe, something behind it whose answer shows that it has been taken. wait and
// lease are whole seconds.
func (s *Session) Acquire(key string, wait, lease time.Duration, probe bool) (*Call, error) {
	owner := owners.Add(1)
	c := &Call{Done: make(chan struct{}), Queued: make(chan struct{}), s: s}
	c.Op = history.Op{Kind: history.Acquire, Key: key, Owner: owner, Wait: wait, Lease: lease, Return: history.Never,
		Session: s.ID, Node: s.Node}
	frame := codec.ClientV1.AppendAcquire(nil, owner, uint16(wait/time.Second), uint16(lease/time.Second), []byte(key))
	noop := ""
	if probe {
		noop = fmt.Sprintf("~noop/%d", owner)
		frame = codec.ClientV1.AppendRelease(frame, 0, 1, []byte(noop))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.refusals > 0 {
		return nil, ErrClosed
	}
	s.acquires[owner] = c
	if probe {
		s.noops[noop] = c
	}
	s.send(c, frame, wait+s.Overdue)
	return c, nil
}

// Release sends a release.
func (s *Session) Release(key string, token uint64) (*Call, error) {
	c := &Call{Done: make(chan struct{}), Queued: make(chan struct{}), s: s}
	c.Op = history.Op{Kind: history.Release, Key: key, Token: token, Return: history.Never, Session: s.ID, Node: s.Node}
	frame := codec.ClientV1.AppendRelease(nil, 0, token, []byte(key))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.refusals > 0 {
		return nil, ErrClosed
	}
	name := releaseName(token, []byte(key))
	s.releases[name] = append(s.releases[name], c)
	s.send(c, frame, s.Overdue)
	return c, nil
}

func releaseName(token uint64, key []byte) string { return fmt.Sprintf("%d/%s", token, key) }

// send writes with mu held. The call's clock starts before the write; a failed write leaves the outcome unknown, since a
// part of it may have arrived.
func (s *Session) send(c *Call, frame []byte, patience time.Duration) {
	c.timer = time.AfterFunc(patience, func() { s.end(c, history.Unanswered) })
	c.Op.Call = s.Log.Now()
	s.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := s.conn.Write(frame); err != nil {
		s.conn.Close() // the reader sees it and ends the session
	}
}

// read takes replies until the connection ends.
func (s *Session) read(buf []byte) {
	defer s.end(nil, history.Unknown)
	chunk := make([]byte, 16<<10)
	for {
		for {
			var r codec.Reply
			n, err := codec.ClientV1.DecodeReply(buf, &r)
			if err != nil {
				s.Log.Stray(fmt.Sprintf("session %d node %d: bytes that no server sends: %q", s.ID, s.Node, buf[:min(len(buf), 40)]))
				return
			}
			if n == 0 {
				break
			}
			s.take(&r)
			buf = buf[n:]
		}
		n, err := s.conn.Read(chunk)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				s.conn.Close()
			}
			return
		}
		buf = append(buf[:0:0], append(buf, chunk[:n]...)...)
	}
}

// take matches one reply.
func (s *Session) take(r *codec.Reply) {
	now := s.Log.Now()
	var leader string
	if r.Leader != nil {
		leader = r.Leader.Addr
	}
	switch r.Kind {
	case 0: // keep-alive
	case codec.Notice:
		s.Hints(leader)
	case codec.Moved, codec.NotActive:
		if r.Kind == codec.Moved {
			s.Hints(leader)
		}
		s.refused()
	case codec.Granted, codec.TimedOut, codec.Busy, codec.Released, codec.NotHeld:
		s.mu.Lock()
		ok := s.match(r, now)
		ended := s.ended
		s.mu.Unlock()
		if !ok && !ended {
			s.Log.Stray(fmt.Sprintf("session %d node %d at %v: kind %d owner %d token %d key %q",
				s.ID, s.Node, now, r.Kind, r.ID, r.Token, r.Key))
		}
	default:
		s.Log.Stray(fmt.Sprintf("session %d node %d at %v: refused with %v", s.ID, s.Node, now, r.Reason))
	}
}

// match finds the request of a reply and ends it. mu is held.
func (s *Session) match(r *codec.Reply, now time.Duration) bool {
	outcome := map[codec.Kind]history.Outcome{codec.Granted: history.Granted, codec.TimedOut: history.TimedOut,
		codec.Busy: history.Busy, codec.Released: history.Released, codec.NotHeld: history.NotHeld}[r.Kind]
	if r.Kind != codec.Released && r.Kind != codec.NotHeld {
		c := s.acquires[r.ID]
		if c == nil || c.Op.Key != string(r.Key) {
			return false
		}
		delete(s.acquires, r.ID)
		c.Op.Token = r.Token
		c.finish(outcome, now)
		return true
	}
	if c := s.noops[string(r.Key)]; c != nil && r.Kind == codec.NotHeld {
		delete(s.noops, string(r.Key))
		select {
		case <-c.Done:
		default:
			c.Op.Queued = now
			close(c.Queued)
		}
		return true
	}
	name := releaseName(r.Token, r.Key)
	waiting := s.releases[name]
	if len(waiting) == 0 {
		return false
	}
	if s.releases[name] = waiting[1:]; len(waiting) == 1 {
		delete(s.releases, name)
	}
	waiting[0].finish(outcome, now)
	return true
}

// finish gives a call its outcome. s.mu is held.
func (c *Call) finish(o history.Outcome, now time.Duration) {
	c.timer.Stop()
	c.Op.Outcome = o
	if c.Op.Return = now; o == history.Unknown || o == history.Unanswered {
		c.Op.Return, c.Op.Gone = history.Never, now
	}
	c.s.Log.Add(c.Op)
	close(c.Done)
}

// refused counts an M or an E. What it means is seen when the session has settled.
func (s *Session) refused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Settle == 0 {
		s.finishAll(history.Unknown, nil)
		return
	}
	if s.refusals++; s.refusals == 1 && !s.ended {
		time.AfterFunc(s.Settle, s.settled)
	}
}

// settled ends a session that has stayed open after its first M or E.
func (s *Session) settled() {
	s.mu.Lock()
	pending := len(s.acquires) + len(s.noops)
	for _, calls := range s.releases { // order does not matter: counted
		pending += len(calls)
	}
	all := s.refusals >= pending
	s.mu.Unlock()
	if all {
		s.end(nil, history.Refused)
		return
	}
	s.end(nil, history.Unknown)
}

// end closes the session; all that is under way gets the outcome, or, where it is given up for the sake of one call,
// that call does and the others are unknown.
func (s *Session) end(first *Call, o history.Outcome) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	s.finishAll(o, first)
	s.mu.Unlock()
	s.conn.Close()
	close(s.gone)
}

// finishAll ends all that is under way: with o, or, where o is the outcome of one call, the others as unknown. mu is
// held.
func (s *Session) finishAll(o history.Outcome, only *Call) {
	now := s.Log.Now()
	finish := func(c *Call) {
		if only == nil || c == only {
			c.finish(o, now)
			return
		}
		c.finish(history.Unknown, now)
	}
	for _, c := range s.acquires { // order does not matter: all end alike
		finish(c)
	}
	for _, calls := range s.releases { // order does not matter: all end alike
		for _, c := range calls {
			finish(c)
		}
	}
	s.acquires, s.releases, s.noops = map[uint64]*Call{}, map[string][]*Call{}, map[string]*Call{}
}
