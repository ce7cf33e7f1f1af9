package server

import (
	"context"
	"time"
)

// Shutdown, PROTOCOL.md section 7: all of it takes less than 5 s.
const (
	inFlightTimeout = 1 * time.Second        // how long what is in flight is waited for
	finishTimeout   = 2 * time.Second        // the last words to the clients, which the loops bound by themselves
	transferTimeout = 500 * time.Millisecond // handing leadership over
	nodeTimeout     = 500 * time.Millisecond
	adminTimeout    = 500 * time.Millisecond
	settlePoll      = 2 * time.Millisecond
)

// Stop stops the server in order: no more connections, no more admissions, the definite no for who is queued, answers for
// what is in flight, a last word to everyone, and an end. It also takes apart what Start had half built. It may be called
// once.
func (s *Server) Stop() {
	if s.engine != nil {
		s.engine.Refuse()
	}
	if s.apply != nil && s.apply.running {
		s.apply.do(s.apply.stop)
		s.waitInFlight()
	}
	if s.node != nil {
		ctx, cancel := context.WithTimeout(context.Background(), transferTimeout)
		if err := s.node.Transfer(ctx); err != nil {
			s.log.Warn("leadership not handed over", "error", err.Error())
		}
		cancel()
	}
	if s.engine != nil {
		ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
		if err := s.engine.Finish(ctx); err != nil {
			s.log.Warn("connections were cut off", "error", err.Error())
		}
		cancel()
	}
	if s.admin != nil {
		ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
		s.admin.Stop(ctx)
		cancel()
	}
	if s.node != nil {
		ctx, cancel := context.WithTimeout(context.Background(), nodeTimeout)
		if err := s.node.Stop(ctx); err != nil {
			s.log.Warn("cluster node did not stop in time", "error", err.Error())
		}
		cancel()
	}
	if s.apply != nil && s.apply.running {
		close(s.apply.quit)
		<-s.apply.ended
	}
	s.workers.Stop()
	if s.tokens != nil {
		if err := s.tokens.Close(); err != nil {
			s.log.Warn("data directory not given up", "error", err.Error())
		}
	}
	for _, c := range s.claims {
		if err := c.Close(); err != nil {
			s.log.Warn("port not given up", "error", err.Error())
		}
	}
}

// stop ends admission, on the apply goroutine.
func (a *applier) stop() {
	a.table.Stop(a.now())
	a.stopping = true
}

// waitInFlight waits until everything that was read has been decided and handed to the loops.
func (s *Server) waitInFlight() {
	end := time.Now().Add(inFlightTimeout)
	tick := time.NewTicker(settlePoll)
	defer tick.Stop()
	for time.Now().Before(end) {
		idle := false
		if !s.apply.do(func() { idle = s.apply.idle() }) || idle {
			return
		}
		<-tick.C
	}
}

// idle says whether nothing is undecided and nothing waits to be handed over, on the apply goroutine.
func (a *applier) idle() bool {
	acquires, releases := a.table.Undecided()
	if acquires > 0 || releases > 0 {
		return false
	}
	for _, l := range a.host.lanes {
		if l.requests.Len() > 0 || l.spill.len() > 0 || l.replies.Len() > 0 {
			return false
		}
	}
	return true
}
