package server

import (
	"time"

	"github.com/ticketing-go/ticketing/locktable"
	"github.com/ticketing-go/ticketing/raftglue"
)

// kept commits every record of a single node at once, after the data directory knows what a restart must not forget:
// that these tokens may have been issued, and the longest lease. The disk is waited for once a block of tokens and
// whenever a longer lease comes than ever before; whoever has the turn waits, and everybody with it.
type kept struct {
	table *lockTable
	file  *raftglue.TokenFile
	fail  func(error)
}

func (c kept) propose(now time.Duration, r *locktable.Record) {
	if len(r.Asks) > 0 {
		longest := time.Duration(0)
		for i := range r.Asks {
			longest = max(longest, r.Asks[i].Lease)
		}
		err := c.file.Reserve(uint64(c.table.NextToken()) + uint64(len(r.Asks)) - 1)
		if err == nil {
			err = c.file.Longest(longest)
		}
		if err != nil {
			// Not committed and not refused: nobody is told anything that a restart would not know.
			c.fail(err)
			return
		}
	}
	c.table.Commit(now, r)
}

// beginAlone starts the table of a node that needs nobody to agree with.
func (s *Server) beginAlone() error {
	a, grace := s.apply, s.settings.Grace
	first := locktable.Token(s.settings.FirstToken)
	a.commit = alone{a.table}
	if s.settings.DataDir != "" {
		file, err := raftglue.OpenTokenFile(s.settings.DataDir, s.settings.FirstToken)
		if err != nil {
			return err
		}
		s.tokens = file
		first = locktable.Token(file.First())
		if !s.settings.GraceSet {
			grace = file.Grace()
		}
		a.commit = kept{a.table, file, s.fail}
	}
	if grace > 0 {
		s.log.Info("no grant before the grace is over", "grace", grace)
	}
	now := a.now()
	by := locktable.Proposer{Stint: 1}
	a.table.Commit(now, a.table.Begin(now, by, locktable.StartTerms{FirstToken: first, Grace: grace}))
	return nil
}
