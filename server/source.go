package server

import (
	"time"

	"github.com/ticketing-go/ticketing/codec"
)

// Snapshot is Source's. The table's numbers are taken with its turn; a server that stops has none of them any more.
func (s *Server) Snapshot() Snapshot {
	version, commit := Version()
	snap := Snapshot{
		Node: s.settings.NodeName, Mode: "single", Version: version, Commit: commit, Uptime: time.Since(s.started),
		Fingerprint: codec.SingleFingerprint(), Loops: s.engine.Stats(),
		InFlightAcquires: int(s.host.gates.acquires.Load()), InFlightReleases: int(s.host.gates.releases.Load()),
		AcquiresGateClosed: s.host.gates.closed.Load(),
	}
	if s.certs != nil {
		snap.CertificateNotAfter = s.certs.NotAfter()
	}
	s.apply.call(func() { s.apply.report(&snap) })
	if s.node == nil {
		return snap
	}
	status := s.node.Status()
	snap.Mode, snap.Cluster, snap.Fingerprint = "cluster", &status, [32]byte{}
	if cluster, _, formed := s.node.Identity(); formed {
		snap.Fingerprint = codec.ClusterFingerprint(cluster)
	}
	return snap
}

// report fills in what only the turn may read.
func (a *applier) report(snap *Snapshot) {
	snap.Table, snap.Waits, snap.Holds = a.table.Counts(), a.table.Waits(), a.table.Holds()
	snap.IdleKeys = a.table.IdleKeys()
	snap.GraceLeft = a.table.GraceLeft(a.now())
	snap.Records, snap.Entries, snap.Batches = a.records, a.entries, a.drained
	snap.ApplyBusy, snap.BusyInFlight = a.busy, a.turnedAway
}

// Ready is Source's: a node that starts, stops, waits for a grace or is no voter of its cluster is not.
func (s *Server) Ready() (ok bool, reason string) {
	var leading, stopping bool
	var left time.Duration
	if !s.apply.call(func() {
		leading, stopping, left = s.apply.table.Leading(), s.apply.stopping, s.apply.table.GraceLeft(s.apply.now())
	}) || stopping {
		return false, "stopping"
	}
	if s.node != nil {
		if ok, reason := s.node.Ready(); !ok {
			return false, reason
		}
	} else if !leading {
		return false, "not serving: the data directory cannot be written"
	}
	if left > 0 {
		return false, GraceReason(left)
	}
	return true, ""
}
