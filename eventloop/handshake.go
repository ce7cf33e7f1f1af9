package eventloop

import (
	"bytes"
	"crypto/subtle"
	"net"
	"net/netip"
	"time"

	"github.com/ticketing-go/ticketing/codec"
)

// prelude is what a session needs until it is authenticated.
type prelude struct {
	greeting  codec.Greeting
	hello     bool // the greeting tells the identity
	addr      netip.Addr
	heldUntil time.Duration // when the challenge is due; 0: it is not held back
}

// tokenSet is one value of SetTokens; it is never changed.
type tokenSet struct{ tokens [][]byte }

func newTokenSet(tokens [][]byte) *tokenSet {
	t := &tokenSet{}
	for _, b := range tokens {
		t.tokens = append(t.tokens, bytes.Clone(b))
	}
	return t
}

func (t *tokenSet) open() bool { return len(t.tokens) == 0 }

// match compares an answer with that of every token, in a time that tells neither which nor where it differs.
func (t *tokenSet) match(w codec.Wire, g *codec.Greeting, answer, scratch []byte) (token, used []byte, ok bool) {
	found, which := 0, 0
	for i, tok := range t.tokens {
		scratch = w.AppendAnswer(scratch[:0], tok, g)
		equal := subtle.ConstantTimeCompare(scratch, answer)
		which = subtle.ConstantTimeSelect(equal, i, which)
		found |= equal
	}
	if found == 0 {
		return nil, scratch, false
	}
	return t.tokens[which], scratch, true
}

// holds says whether a connection that authenticated with token may stay.
func (t *tokenSet) holds(token []byte) bool {
	if token == nil {
		return t.open()
	}
	found := 0
	for _, tok := range t.tokens {
		found |= subtle.ConstantTimeCompare(tok, token)
	}
	return found == 1
}

// SetTokens replaces the client tokens; empty: an open server. Connections that were authenticated by a token that is gone
// are closed, and so are those that had no token when there are some now. The tokens are copied.
func (e *Engine) SetTokens(tokens [][]byte) {
	set := newTokenSet(tokens)
	e.tokens.Store(set) // before the loops look: a session that authenticates meanwhile is seen by one or the other
	e.onLoops(func(l *loop) {
		for _, s := range l.sessions() {
			if s.takesReplies() && !set.holds(s.token) {
				l.n.revoked.Add(1)
				s.forsake = true
				s.end(nil)
			}
		}
	})
}

// challenge sends the greeting, or has it sent later to an address that has answered wrongly too often.
func (s *session) challenge() {
	if a, ok := s.c.RemoteAddr().(*net.TCPAddr); ok {
		s.pre.addr = a.AddrPort().Addr()
	}
	e := s.l.e
	if !e.tokens.Load().open() {
		if hold := e.penalties.hold(s.pre.addr, s.l.now); hold > 0 {
			s.pre.heldUntil = s.l.now + hold
			s.l.n.held.Add(1)
			s.l.wheel.add(s, s.pre.heldUntil)
			return
		}
	}
	s.greet()
}

func (s *session) greet() {
	s.pre.heldUntil = 0
	g := &s.pre.greeting
	g.Nonce48, g.Nonce128 = processNonces.next()
	if s.pre.hello {
		g.Slot = 255
		if identity := s.l.e.cfg.Identity; identity != nil {
			var ok bool
			if g.Mode, g.Slot, g.Fingerprint, ok = identity(); !ok {
				s.failed(failedIdentity)
				s.drop()
				return
			}
		}
	}
	s.state = greeted
	out := s.wire.AppendGreeting(s.l.take(), g)
	s.write(out, 0)
	s.l.give(out)
	if s.state == greeted && s.pending() > 0 {
		s.answered(nil)
	}
}

// answered takes bytes of the answer, and of requests right behind it.
func (s *session) answered(buf []byte) {
	joined := s.pending() > 0
	if joined {
		s.keep(buf)
		if s.state != greeted {
			return
		}
		buf = s.kept.B[s.at:]
	}
	answer, n, err := s.wire.DecodeAnswer(buf)
	if err != nil {
		s.refuse(failedForm)
		return
	}
	if n == 0 {
		if !joined {
			s.keep(buf)
		}
		return
	}
	set := s.l.e.tokens.Load()
	if !set.open() {
		scratch := s.l.take()
		var ok bool
		s.token, scratch, ok = set.match(s.wire, &s.pre.greeting, answer, scratch)
		s.l.give(scratch)
		if !ok {
			s.refuse(failedAnswer)
			return
		}
	}
	if joined {
		s.at += n
	}
	s.accept()
	switch {
	case s.state != serving:
	case !joined:
		s.serve(buf[n:])
	case s.pending() == 0:
		s.discard()
	default:
		s.resume()
	}
}

// failed counts why a session is not authenticated, once.
func (s *session) failed(why failure) {
	if !s.counted {
		s.counted = true
		s.l.n.failed(why)
	}
}

// refuse says that authentication failed. Such answers count against the address, unless nobody can be wrong.
func (s *session) refuse(why failure) {
	s.failed(why)
	if !s.l.e.tokens.Load().open() {
		s.l.e.penalties.failed(s.pre.addr, s.l.now)
	}
	s.discard()
	s.end(s.wire.AppendRefused(nil))
}

// accept makes the session known: from now on the Host hears of it.
func (s *session) accept() {
	if !s.l.e.lobby.leave(s) {
		s.drop()
		return
	}
	s.state = serving
	s.hosted = true
	s.pre = nil
	s.l.n.authenticated.Add(1)
	s.l.wheel.add(s, s.l.now+quietTimeout)
	out := s.wire.AppendAccepted(s.l.take())
	if n := s.l.e.notice.Load(); n != nil && !n.lead && n.leader != nil {
		out, _ = s.wire.AppendReply(out, &codec.Reply{Kind: codec.Notice, Leader: n.leader})
	}
	s.write(out, 0)
	s.l.give(out)
}
