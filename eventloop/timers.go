package eventloop

import (
	"time"

	"github.com/ticketing-go/ticketing/codec"
)

// wheel holds each session of a loop once, at the tick of its next time limit, or earlier: a limit that moves away leaves
// the session where it is, to be looked at in vain. So a limit costs nothing to push back, and a tick costs what is due.
type wheel struct {
	at    int // the tick that was last looked at
	slots [wheelTicks]*session
}

// wheelTicks is above the ticks of the longest limit, so that what lies in a slot is due when its tick comes.
const wheelTicks = 1024

const _ = uint(wheelTicks - int(quietTimeout/tickPeriod) - 1)

// add has a session looked at when due has come, if it is not due earlier anyway.
func (w *wheel) add(s *session, due time.Duration) {
	// Never the slot that is being looked at: after a long stop of the process the wheel is far behind.
	tick := min(max(int((due+tickPeriod-1)/tickPeriod), w.at+1), w.at+wheelTicks-1)
	if s.tick != 0 {
		if s.tick <= tick {
			return
		}
		w.remove(s)
	}
	s.tick = tick
	head := &w.slots[tick%wheelTicks]
	s.nextDue = *head
	if *head != nil {
		(*head).prevDue = s
	}
	*head = s
}

func (w *wheel) remove(s *session) {
	if s.tick == 0 {
		return
	}
	if s.prevDue != nil {
		s.prevDue.nextDue = s.nextDue
	} else {
		w.slots[s.tick%wheelTicks] = s.nextDue
	}
	if s.nextDue != nil {
		s.nextDue.prevDue = s.prevDue
	}
	s.nextDue, s.prevDue, s.tick = nil, nil, 0
}

// advance looks at all sessions that are due by now.
func (w *wheel) advance(now time.Duration) {
	for last := int(now / tickPeriod); w.at < last; {
		w.at++
		for {
			// One by one from the head: looking at a session may remove others.
			s := w.slots[w.at%wheelTicks]
			if s == nil {
				break
			}
			w.remove(s)
			if due, more := s.check(now); more {
				w.add(s, due)
			}
		}
	}
}

// check enforces the limits of a session's state; more: it is to be looked at again at due.
func (s *session) check(now time.Duration) (due time.Duration, more bool) {
	switch s.state {
	case opening, greeted:
		limit := s.opened + authTimeout
		if s.turned {
			limit = s.opened + turnTimeout
		}
		if now >= limit {
			s.failed(failedTimeout)
			s.drop()
			return 0, false
		}
		if s.pre.heldUntil > 0 && now >= s.pre.heldUntil {
			s.greet()
		}
		if s.state == opening && s.pre.heldUntil > 0 {
			limit = min(limit, s.pre.heldUntil)
		}
		return limit, s.state != gone
	case serving:
		return s.checkServing(now)
	case faulted:
		if now >= s.deadline {
			s.left()
		}
		return s.deadline, s.state != gone
	case lingering:
		if now >= s.deadline {
			s.drop()
		}
		return s.deadline, s.state != gone
	}
	return 0, false
}

func (s *session) checkServing(now time.Duration) (due time.Duration, more bool) {
	due = s.lastWrite + quietTimeout
	if now >= due {
		if s.stall == nil {
			s.write(s.wire.AppendKeepAlive(nil), 0)
		}
		s.lastWrite = now // a wire without a keep-alive is looked at as seldom
		due = now + quietTimeout
	}
	if s.state == serving && s.frameStart > 0 {
		limit := s.frameStart + frameTimeout
		if now >= limit {
			s.fault(codec.BadRequest)
			return s.deadline, s.state != gone
		}
		due = min(due, limit)
	}
	if s.state != serving {
		due = s.deadline
	}
	return due, s.state != gone
}
