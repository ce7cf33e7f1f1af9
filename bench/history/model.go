package history

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// step is one operation as the model of a single key takes it. Time enters the model only through the instants that an
// operation carries: a grant over a holder that did not release is right if the holder's lease can have ended by the
// time the grant was answered. So the end of a lease needs no operation of its own.
type step struct {
	kind    Kind
	outcome Outcome
	token   uint64
	from    time.Duration // no effect before this
	to      time.Duration // no effect after this
	lease   time.Duration
	resume  *lock // not nil: the key stands so when the segment begins (reduce.go)
	op      *Op   // what it was made of, for a report; nil with resume
}

// lock is the state of one key. Its instants are the earliest that are possible, so the model never accuses a service
// that was merely slow.
type lock struct {
	held   bool
	token  uint64        // of the holder; 0: a token that nobody saw
	last   uint64        // the greatest token known to have been granted
	expiry time.Duration // held: the earliest instant at which the lease may have ended
	since  time.Duration // the earliest instant at which the key can have come into this state; nothing later is before it
}

// grant is the state after a grant to k.
func (k lock) grant(s *step, token uint64) []lock {
	from := max(s.from, k.since)
	if k.held {
		from = max(from, k.expiry)
	}
	if from > s.to {
		return nil
	}
	return []lock{{held: true, token: token, last: max(k.last, token), expiry: from + s.lease, since: from}}
}

// free is the state after the key came free by s, at t or later.
func (k lock) free(s *step, t time.Duration) []lock {
	return []lock{{last: max(k.last, s.token), since: max(t, k.since)}}
}

// next are all states in which the key may be after s; none if s cannot have happened.
func (k lock) next(s *step) []lock {
	if s.resume != nil {
		return []lock{*s.resume}
	}
	same := []lock{k}
	if s.to < k.since {
		return nil
	}
	if s.kind == Acquire {
		switch s.outcome {
		case Granted:
			if s.token <= k.last {
				return nil
			}
			return k.grant(s, s.token)
		case Unknown, Unanswered:
			return append(same, k.grant(s, 0)...)
		}
		return same
	}
	match := k.held && (k.token == s.token || k.token == 0 && s.token > k.last)
	switch s.outcome {
	case Released:
		if match {
			return k.free(s, s.from)
		}
		return nil
	case NotHeld:
		switch {
		case !match:
			return same
		case k.token == 0: // of somebody else whose token nobody saw, or run out
			if s.to >= k.expiry {
				return append(same, k.free(s, k.expiry)...)
			}
			return same
		case s.to >= k.expiry:
			return k.free(s, k.expiry)
		}
		return nil
	case Unknown, Unanswered:
		if match {
			return append(same, k.free(s, s.from)...)
		}
	}
	return same
}

// model is the specification of one key for porcupine.
func model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{lock{}} },
		Step: func(state, input, _ any) []any {
			next := state.(lock).next(input.(*step))
			out := make([]any, len(next))
			for i, k := range next {
				out[i] = k
			}
			return out
		},
		Hash: func(state any) uint64 {
			k := state.(lock)
			h := k.last*0x9E3779B97F4A7C15 ^ k.token*0xC2B2AE3D27D4EB4F ^ uint64(k.expiry) ^ uint64(k.since)<<1
			if k.held {
				h ^= 0x5555
			}
			return h
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", *input.(*step)) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state.(lock)) },
	}
	return m.ToModel()
}

// operations are steps in porcupine's form.
func operations(steps []step) []porcupine.Operation {
	ops := make([]porcupine.Operation, len(steps))
	for i := range steps {
		s := &steps[i]
		ops[i] = porcupine.Operation{Input: s, Call: int64(s.from), Return: int64(s.to)}
		if s.op != nil {
			ops[i].ClientId = int(s.op.Session)
		}
	}
	return ops
}
