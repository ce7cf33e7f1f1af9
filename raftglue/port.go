package raftglue

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// peerPort accepts peers' connections. Their handshakes run beside the accept loop, so that a silent one holds up
// nobody, and in bounded number.
type peerPort struct {
	node       *Node
	ln         net.Listener
	handshakes chan struct{} // a place for each handshake under way

	mu     sync.Mutex
	open   map[net.Conn]struct{} // accepted and not closed
	closed bool
	wg     sync.WaitGroup
}

func (p *peerPort) serve() {
	defer p.wg.Done()
	pause := 5 * time.Millisecond
	for {
		c, err := p.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptor left, most likely: they come back
			select {
			case <-time.After(pause):
				pause = min(2*pause, time.Second)
				continue
			case <-p.node.stop:
				return
			}
		}
		pause = 5 * time.Millisecond
		select {
		case p.handshakes <- struct{}{}:
		default:
			c.Close()
			continue
		}
		if !p.add(c) {
			<-p.handshakes
			c.Close()
			continue
		}
		go p.greet(c) // until the connection or the node closes
	}
}

func (p *peerPort) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.open) >= maxPeerConns {
		return false
	}
	p.open[c] = struct{}{}
	p.wg.Add(1)
	return true
}

func (p *peerPort) forget(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// cut closes all accepted connections, and refuses further ones from now on.
func (p *peerPort) cut() {
	p.ln.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for c := range p.open {
		c.Close()
	}
}

// peerConn is an accepted connection; closing it gives its place back.
type peerConn struct {
	net.Conn
	raw  net.Conn
	port *peerPort
}

// Close is part of net.Conn.
func (c peerConn) Close() error {
	err := c.Conn.Close()
	c.port.forget(c.raw)
	return err
}

func (p *peerPort) greet(raw net.Conn) {
	defer p.wg.Done()
	deadline := time.Now().Add(handshakeTimeout)
	c, pre, err := p.handshake(raw, deadline)
	<-p.handshakes
	if err != nil {
		p.forget(raw)
		p.node.refusedPeer(raw.RemoteAddr(), pre, err)
		return
	}
	pc := peerConn{c, raw, p}
	if pre.kind == kindAsk {
		defer pc.Close()
		serveAsk(pc, p.node.answer)
		return
	}
	consensus := p.node.consensus.Load()
	if consensus == nil {
		pc.Close()
		return
	}
	select {
	case consensus.stream.conns <- pc:
	case <-consensus.stream.closed:
		pc.Close()
	case <-p.node.stop:
		pc.Close()
	}
}

func (p *peerPort) handshake(raw net.Conn, deadline time.Time) (net.Conn, preface, error) {
	c := raw
	if cfg := p.node.cfg.PeerTLSServer; cfg != nil {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		defer cancel()
		tc := tls.Server(raw, cfg)
		if err := tc.HandshakeContext(ctx); err != nil {
			return nil, preface{}, fmt.Errorf("TLS: %w", err)
		}
		c = tc
	}
	judge := p.node.judge
	if other := p.node.cfg.judge; other != nil {
		judge = func(pre *preface) verdict { return other(p.node, pre) }
	}
	pre, err := acceptPeer(c, p.node.cfg.PeerToken, deadline, judge)
	return c, pre, err
}

// judge decides about a dialer that knows the peer token. A connection for Raft is taken only from a member of this
// node's cluster that means this very incarnation: an empty process must not answer as the one whose place it takes.
func (n *Node) judge(p *preface) verdict {
	v := verdict{code: welcome, own: n.inc, start: n.start}
	if p.meant != (Incarnation{}) && p.meant != n.inc {
		v.code = otherIncarnation
		return v
	}
	if p.own != (Incarnation{}) && !n.seen.check(p.own, p.start) {
		v.code = startsFell
		return v
	}
	if p.kind == kindAsk {
		return v
	}
	switch {
	case p.meant == (Incarnation{}):
		v.code = otherIncarnation
	case p.cluster == (ClusterID{}) || !n.contacted(p.cluster):
		v.code = otherCluster
	default:
		n.learnAddresses(p.own, p.addresses)
	}
	return v
}

// raftStream is what Raft's network transport listens and dials with.
type raftStream struct {
	node   *Node
	conns  chan peerConn // unbuffered: whoever has shaken hands waits for Raft to take the connection
	closed chan struct{}

	mu     sync.Mutex
	dialed map[net.Conn]struct{} // open; nil: closed
}

// Accept is part of net.Listener.
func (s *raftStream) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and Dial, and closes what was dialed, so that no call to a silent peer holds a shutdown up. The port
// stays open for questions.
func (s *raftStream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dialed == nil {
		return nil
	}
	close(s.closed)
	for c := range s.dialed {
		c.Close()
	}
	s.dialed = nil
	return nil
}

// dialedConn is a connection that its stream closes with itself.
type dialedConn struct {
	net.Conn
	stream *raftStream
}

// Close is part of net.Conn.
func (c dialedConn) Close() error {
	c.stream.mu.Lock()
	delete(c.stream.dialed, c.Conn)
	c.stream.mu.Unlock()
	return c.Conn.Close()
}

// keep makes the stream close a connection with itself, unless it is closed already.
func (s *raftStream) keep(c net.Conn) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dialed == nil {
		c.Close()
		return nil, net.ErrClosed
	}
	s.dialed[c] = struct{}{}
	return dialedConn{c, s}, nil
}

type raftAddr raft.ServerAddress

// Network is part of net.Addr.
func (raftAddr) Network() string { return "tcp" }

// String is this node's Raft address.
func (a raftAddr) String() string { return string(a) }

// Addr is this node's Raft address, as others dial it.
func (s *raftStream) Addr() net.Addr {
	return raftAddr(raftAddress(s.node.peerAddress, s.node.inc))
}

// Dial opens a connection to one incarnation of a peer.
func (s *raftStream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	select {
	case <-s.closed:
		return nil, net.ErrClosed
	default:
	}
	peer, inc, err := parseRaftAddress(address)
	if err != nil {
		return nil, err
	}
	p := s.node.preface(inc)
	p.kind = kindRaft
	c, v, err := s.node.caller().open(peer, p, timeout)
	if err != nil {
		if errors.Is(err, ErrStartsFell) {
			s.node.fail(err)
		}
		return nil, err
	}
	if !s.node.seen.check(v.own, v.start) {
		c.Close()
		return nil, ErrStartsFell
	}
	return s.keep(c)
}
