package locktable

// Gate admits until use reaches 90 % of a limit, and then again when it has fallen below 75 % (PROTOCOL.md section 5).
// It moves with use, not with the next try: call Use at every change.
type Gate struct {
	limit, mark int
	closed      bool
}

// NewGate makes an open gate; limit is at least 1.
func NewGate(limit int) Gate { return Gate{limit: limit, mark: max(1, limit*9/10)} }

// Use tells the gate how much is in use.
func (g *Gate) Use(n int) {
	if n >= g.mark {
		g.closed = true
	} else if n*4 < g.limit*3 {
		g.closed = false
	}
}

// Closed says whether what the gate guards is refused.
func (g *Gate) Closed() bool { return g.closed }
