//go:build !nolocks

package server

import "github.com/ticketing-go/ticketing/locktable"

// lockTable is the table that the applier owns. A build with the tag nolocks has one without lock logic in its place: the
// reference against which a cluster is measured, with the same loops, rings, gates and Raft.
type lockTable = locktable.Table

func newTable(limits locktable.Limits, first locktable.Token, sink locktable.Sink) *lockTable {
	return locktable.New(limits, first, sink)
}
