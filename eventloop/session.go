package eventloop

import (
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/valyala/bytebufferpool"
	"golang.org/x/sys/unix"

	"github.com/ticketing-go/ticketing/codec"
)

// state is how far a session has come. It only rises.
type state uint8

const (
	opening   state = iota // TLS handshake under way, or the challenge held back
	greeted                // the greeting is written, the answer is not complete
	serving                // authenticated
	faulted                // a bad frame came: nothing more is decoded, what is in flight is answered
	lingering              // all that is due was given to Write; the peer may take it
	gone                   // gnet has closed the connection
)

// session is one connection. All of it belongs to the loop.
type session struct {
	l     *loop
	c     gnet.Conn // not touched once state is gone
	id    SessionID
	wire  codec.Wire
	state state

	hosted  bool // the Host knows of it and was not yet told Disconnected
	blocked bool // in l.blocked: Host had no room for the frame at the front of kept
	slow    bool // back-pressure: more than maxUnwritten replies unwritten
	shut    bool // our half is shut
	forsake bool // what is kept is not carried out at the end
	listed  bool // in l.stalled
	turned  bool // one too many: it is closed when its TLS handshake is done
	counted bool // its failure to authenticate

	reason codec.Reason // faulted
	token  []byte       // what it authenticated with; nil on an open server
	pre    *prelude     // until it is authenticated
	tls    *secure      // nil on plain TCP

	// kept[at:] is what arrived and is not decoded: an unfinished frame, or, while held, anything.
	kept *bytebufferpool.ByteBuffer
	at   int

	frameStart time.Duration // when the first byte of the unfinished frame came; 0: none, or held
	frameSpent time.Duration // what of the frame's time was spent before it was held

	run     []byte // replies gathered by this drain; nil: not in l.dirty
	replies int    // how many
	urgent  bool   // a grant among them
	offered uint64 // bytes given to Write so far
	stall   *stall // nil while the kernel has taken them all

	opened    time.Duration
	lastWrite time.Duration
	deadline  time.Duration // of faulted and lingering

	before, behind   *session // lobby, as are waiting and evicted
	waiting, evicted bool
	nextDue, prevDue *session // wheel
	tick             int      // where on it; 0: not
}

func (s *session) takesReplies() bool { return s.state == serving || s.state == faulted }

func (s *session) muted() bool { return s.state >= lingering }

// held says that what arrives is kept undecoded.
func (s *session) held() bool { return s.blocked || s.slow }

// arrived takes bytes as they came from the socket.
func (s *session) arrived(buf []byte) {
	if s.muted() {
		return // read and forgotten, so that the close is no reset
	}
	if s.tls != nil {
		s.tls.arrived(buf)
		return
	}
	s.feed(buf)
}

// feed takes bytes of the wire. buf is borrowed.
func (s *session) feed(buf []byte) {
	switch s.state {
	case opening:
		s.keep(buf)
	case greeted:
		s.answered(buf)
	case serving:
		if s.slow {
			s.measure() // there may be room since the last poll
			if s.state != serving {
				return
			}
		}
		s.serve(buf)
	}
}

// serve decodes what is kept, then buf where it lies, and keeps the rest.
func (s *session) serve(buf []byte) {
	if s.held() {
		s.keep(buf)
		return
	}
	if old := s.pending(); old > 0 {
		// A frame straddles two reads: enough of buf is copied to put it together.
		n := min(max(s.wire.MaxFrameBytes()+1-old, 0), len(buf))
		s.keep(buf[:n])
		taken := s.consume(s.kept.B[s.at:])
		if s.state != serving {
			return
		}
		if s.held() {
			s.at += taken
			s.keep(buf[n:])
			return
		}
		if taken < old {
			if n < len(buf) {
				s.fault(codec.BadRequest) // no frame of the wire is that long
			}
			return
		}
		buf = buf[taken-old:] // what else was copied is decoded in place
		s.discard()
	}
	taken := s.consume(buf)
	if s.state != serving {
		return
	}
	s.frameStart = 0
	if taken == len(buf) {
		return
	}
	s.keep(buf[taken:])
	if !s.held() && s.state == serving {
		s.frameStart = s.l.now
		s.l.wheel.add(s, s.l.now+frameTimeout)
	}
}

// consume hands over the frames at the start of buf and returns how many bytes they took. It ends at an unfinished frame,
// at one for which Host has no room, and at one that is a fault.
func (s *session) consume(buf []byte) (taken int) {
	l, r := s.l, &s.l.request
	requests := uint64(0)
	for taken < len(buf) {
		n, err := s.wire.Decode(buf[taken:], r)
		if err != nil {
			reason := codec.BadRequest
			if fe, ok := err.(*codec.FrameError); ok {
				reason = fe.Reason
			}
			s.fault(reason)
			break
		}
		if n == 0 {
			break
		}
		if r.Op != codec.KeepAlive {
			l.handed = true // even a refusal: Flush wakes the one who makes room
			if !l.e.cfg.Host.Request(s.id, r) {
				s.block()
				break
			}
			requests++
		}
		taken += n
	}
	l.n.requests.Add(requests)
	return taken
}

// block has the frame at the front of what is kept offered again at the next kick.
func (s *session) block() {
	s.l.n.paused.Add(1)
	s.frameStart, s.frameSpent = 0, 0
	s.blocked = true
	s.l.blocked = append(s.l.blocked, s)
}

// resume decodes what was kept while the session was held.
func (s *session) resume() {
	if s.state != serving || s.held() {
		return
	}
	spent := s.frameSpent
	s.frameSpent = 0
	if s.pending() == 0 {
		return
	}
	taken := s.consume(s.kept.B[s.at:])
	if s.state != serving {
		return
	}
	s.at += taken
	if s.pending() == 0 {
		s.discard()
		return
	}
	if !s.held() {
		if taken > 0 {
			spent = 0
		}
		s.frameStart = s.l.now - spent
		s.l.wheel.add(s, s.frameStart+frameTimeout)
	}
}

// pending is how many bytes are kept.
func (s *session) pending() int {
	if s.kept == nil {
		return 0
	}
	return len(s.kept.B) - s.at
}

// keep copies what cannot be decoded yet. It closes the connection when that is too much.
func (s *session) keep(b []byte) {
	if len(b) == 0 {
		return
	}
	if s.kept == nil {
		s.kept = bytebufferpool.Get()
		s.at = 0
	}
	if s.at > 0 && s.at >= len(s.kept.B)/2 {
		s.kept.B = s.kept.B[:copy(s.kept.B, s.kept.B[s.at:])]
		s.at = 0
	}
	s.kept.B = append(s.kept.B, b...)
	limit := maxKeptSlow
	if s.blocked && !s.slow {
		limit = maxKeptPaused
	}
	if s.pending() <= limit {
		return
	}
	if s.slow {
		s.l.n.slow.Add(1)
	} else {
		s.l.n.overrun.Add(1)
	}
	s.drop()
}

func (s *session) discard() {
	if s.kept != nil {
		bytebufferpool.Put(s.kept)
		s.kept, s.at = nil, 0
	}
}

// write gives plain bytes to the socket layer, which may close the connection at once: state is then gone. b is the
// caller's again.
func (s *session) write(b []byte, replies int) {
	if len(b) == 0 || s.muted() {
		return
	}
	if s.tls != nil {
		b = s.tls.seal(b)
	}
	s.send(b, replies)
}

// send is write below TLS.
func (s *session) send(b []byte, replies int) {
	s.offered += uint64(len(b))
	s.lastWrite = s.l.now
	s.l.n.wrote(len(b), replies)
	_, _ = s.c.Write(b) // an error has closed the connection already
	if s.state != gone && (s.stall != nil || s.c.OutboundBuffered() > 0) {
		s.unsent(len(b), replies)
	}
}

// flush writes the replies that were gathered.
func (s *session) flush() {
	if s.replies == 0 {
		return
	}
	b, n := s.run, s.replies
	s.run, s.replies = s.run[:0], 0
	s.write(b, n)
}

// fault ends decoding at a bad frame: the Host answers what is in flight and then says Left.
func (s *session) fault(reason codec.Reason) {
	s.l.n.faults[reason].Add(1)
	s.state, s.reason = faulted, reason
	s.deadline = s.l.now + leaveTimeout
	s.frameStart = 0
	s.discard()
	s.l.wheel.add(s, s.deadline)
	s.l.handed = true
	s.l.e.cfg.Host.Leave(s.id)
}

// left writes the farewell of a bad frame. To a session that did not ask it says that more answers are held back for it
// than may be: it is closed as slow.
func (s *session) left() {
	switch s.state {
	case faulted:
		s.end(s.wire.AppendFault(nil, s.reason))
	case serving:
		s.l.n.slow.Add(1)
		s.drop()
	}
}

// end closes in order: last is the last that is written; then the peer has lingerTimeout to take it all. Our half is shut
// as soon as the kernel has everything, and what arrives is read and forgotten: a close with unread bytes would be a
// reset, which can destroy what the peer has not read yet.
func (s *session) end(last []byte) {
	if s.muted() {
		return
	}
	s.flush()
	s.write(last, 0)
	if s.tls != nil && !s.muted() {
		s.tls.closeNotify()
	}
	if s.muted() {
		return
	}
	s.state = lingering
	s.deadline = s.l.now + lingerTimeout
	s.l.wheel.add(s, s.deadline)
	s.retire()
	if s.stall == nil {
		s.shutWrite()
	}
}

func (s *session) shutWrite() {
	if !s.shut {
		s.shut = true
		_ = unix.Shutdown(s.c.Fd(), unix.SHUT_WR)
	}
}

// drop closes at once. What gnet still has is flushed as far as the kernel takes it.
func (s *session) drop() {
	if s.state != gone {
		_ = s.l.el.Close(s.c)
	}
}

// closed is OnClose. The connection is not touched any more.
func (s *session) closed() {
	if s.state == gone {
		return
	}
	unauthenticated := s.state < serving
	first := !s.muted()
	s.state = gone
	s.l.wheel.remove(s)
	s.l.e.lobby.closed(s)
	if s.tls != nil {
		s.tls.kill()
	}
	if unauthenticated {
		s.failed(failedLeft)
	}
	if first {
		s.retire()
	} else if !s.hosted {
		s.vacate()
	}
}

// retire is called once, when nothing more will be written.
func (s *session) retire() {
	s.frameStart = 0
	if !s.blocked {
		s.salvage()
	}
}

// salvage carries out what a session sent before its end: its releases, always, waiting for room if need be; acquires are
// left out, since nobody could read their grants. Then the Host is told that it is gone.
func (s *session) salvage() {
	l := s.l
	for s.hosted && !s.forsake && s.pending() > 0 {
		n, err := s.wire.Decode(s.kept.B[s.at:], &l.request)
		if err != nil || n == 0 {
			break
		}
		if l.request.Op == codec.Release {
			l.handed = true
			if !l.e.cfg.Host.Request(s.id, &l.request) {
				s.block()
				return
			}
		}
		s.at += n
	}
	s.discard()
	if s.hosted {
		s.hosted = false
		l.handed = true
		l.e.cfg.Host.Disconnected(s.id)
	}
	if s.state == gone {
		s.vacate()
	}
}

func (s *session) vacate() {
	s.l.vacate(s)
	s.l.e.n.live.Add(-1)
}
