package eventloop

import (
	"context"
	"time"
)

// stall follows what was given to Write and is not yet taken by the kernel. gnet buffers it without a bound and tells
// nothing of progress: that is offered minus OutboundBuffered, looked at every stallPoll.
type stall struct {
	marks   []mark // of the writes that are not wholly taken, oldest first
	replies int    // in marks
	taken   uint64 // bytes of the session's life that the kernel has taken
	since   time.Duration
}

// mark is the end of one write.
type mark struct {
	end     uint64 // in bytes of the session's life
	bytes   int32
	replies int32
}

// unwritten is how many replies the kernel has not taken whole. Within one write they count as if of one size.
func (st *stall) unwritten() int {
	if len(st.marks) == 0 {
		return 0
	}
	m := st.marks[0]
	left := int64(m.end - st.taken)
	if left >= int64(m.bytes) {
		return st.replies
	}
	part := (left*int64(m.replies) + int64(m.bytes) - 1) / int64(m.bytes)
	return st.replies - int(m.replies) + int(part)
}

// unsent notes a write of which the kernel has not taken all.
func (s *session) unsent(bytes, replies int) {
	if s.stall == nil {
		s.stall = &stall{taken: s.offered - uint64(s.c.OutboundBuffered()), since: s.l.now}
		s.l.watch(s)
	}
	s.stall.marks = append(s.stall.marks, mark{s.offered, int32(bytes), int32(replies)})
	s.stall.replies += replies
	s.measure()
}

// measure looks how far the kernel is, and starts or ends back-pressure.
func (s *session) measure() {
	st := s.stall
	if st == nil {
		return
	}
	left := uint64(s.c.OutboundBuffered())
	if taken := s.offered - left; taken > st.taken {
		st.taken = taken
		st.since = s.l.now
	}
	done := 0
	for done < len(st.marks) && st.marks[done].end <= st.taken {
		st.replies -= int(st.marks[done].replies)
		done++
	}
	st.marks = st.marks[:copy(st.marks, st.marks[done:])]
	unwritten := st.unwritten()
	if left == 0 {
		s.stall = nil
	}
	switch {
	case s.state != serving:
	case !s.slow && unwritten > maxUnwritten:
		s.slow = true
		st.since = s.l.now
		s.l.n.pressed.Add(1)
		if s.frameStart > 0 {
			s.frameSpent = s.l.now - s.frameStart // the timer stands still
			s.frameStart = 0
		}
	case s.slow && unwritten <= maxUnwritten:
		s.slow = false
		s.resume()
	}
}

// watch has a session polled.
func (l *loop) watch(s *session) {
	if s.listed {
		return
	}
	s.listed = true
	l.stalled = append(l.stalled, s)
	if len(l.stalled) == 1 {
		l.pollSoon()
	}
}

func (l *loop) pollSoon() {
	if l.poller == nil {
		l.poller = time.AfterFunc(stallPoll, func() { _ = l.el.Execute(context.Background(), l.polls) })
		return
	}
	l.poller.Reset(stallPoll)
}

// poll looks at all sessions with unwritten bytes.
func (l *loop) poll() {
	watched := l.stalled
	l.stalled = nil
	for _, s := range watched {
		s.listed = false
		if s.state == gone {
			continue
		}
		s.measure()
		if st := s.stall; st != nil {
			if s.state == serving && s.slow && l.now-st.since >= stallTimeout {
				l.n.slow.Add(1)
				s.drop()
				continue
			}
			s.listed = true
			l.stalled = append(l.stalled, s)
		} else if s.state == lingering {
			s.shutWrite()
		}
	}
	if len(l.stalled) > 0 {
		l.pollSoon()
	}
}
