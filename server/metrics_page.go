package server

import (
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/ticketing-go/ticketing/locktable"
)

// collector turns one Snapshot into one page of metrics. It keeps nothing between pages.
type collector struct {
	source Source
	descs  map[string]*prometheus.Desc
}

// newRegistry makes the registry of one server: nothing of it is global.
func newRegistry(source Source) *prometheus.Registry {
	c := &collector{source: source, descs: make(map[string]*prometheus.Desc, len(metrics))}
	for _, m := range metrics {
		c.descs[m.name] = prometheus.NewDesc(metricPrefix+m.name, m.help, m.labels, nil)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(c, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Describe names every metric that may come.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range metrics {
		ch <- c.descs[m.name]
	}
}

// Collect asks the source once.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.source.Snapshot()
	ready, _ := c.source.Ready()
	p := page{c.descs, ch}
	p.node(&s, ready)
	p.table(&s)
	p.apply(&s)
	p.loops(&s)
	p.cluster(&s)
}

// page is one answer.
type page struct {
	descs map[string]*prometheus.Desc
	ch    chan<- prometheus.Metric
}

func (p page) gauge(name string, v float64, labels ...string) {
	p.ch <- prometheus.MustNewConstMetric(p.descs[name], prometheus.GaugeValue, v, labels...)
}

func (p page) counter(name string, v float64, labels ...string) {
	p.ch <- prometheus.MustNewConstMetric(p.descs[name], prometheus.CounterValue, v, labels...)
}

func (p page) flag(name string, on bool, labels ...string) {
	v := 0.0
	if on {
		v = 1
	}
	p.gauge(name, v, labels...)
}

// durations writes a histogram of durations in seconds.
func (p page) durations(name string, h *locktable.Histogram) {
	p.buckets(name, h, h.Sum.Seconds(), func(i int) float64 {
		return math.Ldexp(1e-6, i) // bucket i is below 2^i microseconds
	})
}

// sizes writes a histogram whose durations are numbers, one microsecond each.
func (p page) sizes(name string, h *locktable.Histogram) {
	p.buckets(name, h, float64(h.Sum/time.Microsecond), func(i int) float64 {
		return math.Ldexp(1, i) - 1 // bucket i is below 2^i: at most 2^i-1
	})
}

func (p page) buckets(name string, h *locktable.Histogram, sum float64, bound func(i int) float64) {
	last := len(h.Buckets) - 1 // has no bound
	cumulative, count := make(map[float64]uint64, last), uint64(0)
	for i, n := range h.Buckets {
		count += n
		if i < last {
			cumulative[bound(i)] = count
		}
	}
	p.ch <- prometheus.MustNewConstHistogram(p.descs[name], count, sum, cumulative)
}

func (p page) node(s *Snapshot, ready bool) {
	p.gauge("build_info", 1, s.Version, s.Commit)
	p.gauge("uptime_seconds", s.Uptime.Seconds())
	p.flag("ready", ready)
	p.gauge("grace_remaining_seconds", s.GraceLeft.Seconds())
	if !s.CertificateNotAfter.IsZero() {
		p.gauge("tls_certificate_not_after_timestamp_seconds", float64(s.CertificateNotAfter.Unix()))
	}
}

func (p page) table(s *Snapshot) {
	t := &s.Table
	p.counter("grants_total", float64(t.Grants))
	p.counter("releases_total", float64(t.Releases))
	p.counter("not_held_total", float64(t.NotHelds))
	p.counter("wait_timeouts_total", float64(t.Timeouts))
	p.counter("busy_total", float64(s.BusyInFlight), "in_flight")
	p.counter("busy_total", float64(t.BusyKeys), "keys")
	p.counter("busy_total", float64(t.BusyWaiters), "waiters")
	p.counter("busy_total", float64(t.BusyKeyWaiters), "key_waiters")
	p.counter("busy_total", float64(t.BusySpent), "tokens_spent")
	p.counter("busy_total", float64(t.BusyGrace), "grace")
	p.counter("lease_expiries_total", float64(t.Expiries))
	p.counter("revocations_total", float64(t.Revocations))
	p.counter("hand_overs_total", float64(t.HandOvers))
	p.counter("reaffirms_total", float64(t.Reaffirms))
	p.counter("queued_total", float64(t.Queued))
	p.gauge("keys", float64(t.Keys))
	p.gauge("keys_held", float64(t.Held))
	p.gauge("waiters", float64(t.Waiters))
	p.flag("gate_closed", t.KeysGateClosed, "keys")
	p.flag("gate_closed", t.WaitersGateClosed, "waiters")
	p.gauge("idle_keys_with_waiter", float64(s.IdleKeys))
	p.durations("wait_duration_seconds", &s.Waits)
	p.durations("hold_duration_seconds", &s.Holds)
}

func (p page) apply(s *Snapshot) {
	p.flag("gate_closed", s.AcquiresGateClosed, "acquires")
	p.gauge("in_flight", float64(s.InFlightAcquires), "acquire")
	p.gauge("in_flight", float64(s.InFlightReleases), "release")
	p.sizes("apply_batch_requests", &s.Batches)
	p.counter("apply_busy_seconds_total", s.ApplyBusy.Seconds())
	p.counter("records_total", float64(s.Records))
	p.counter("entries_total", float64(s.Entries))
}

func (p page) loops(s *Snapshot) {
	l := &s.Loops
	p.gauge("connections", float64(l.Connections))
	p.gauge("connections_unauthenticated", float64(l.Unauthenticated))
	p.gauge("connections_limit", float64(l.MaxConnections))
	p.counter("connections_accepted_total", float64(l.Accepted))
	p.counter("connections_authenticated_total", float64(l.Authenticated))
	p.counter("connections_closed_total", float64(l.OverCap), "over_limit")
	p.counter("connections_closed_total", float64(l.Refused), "stopping")
	p.counter("connections_closed_total", float64(l.Evicted), "evicted")
	p.counter("connections_closed_total", float64(l.Revoked), "token_revoked")
	p.counter("connections_closed_total", float64(l.SlowCloses), "slow")
	p.counter("connections_closed_total", float64(l.Overruns), "overrun")
	p.counter("challenges_held_total", float64(l.Held))
	for reason, n := range l.HandshakeFailures {
		p.counter("handshake_failures_total", float64(n), reason)
	}
	for reason, n := range l.FrameFaults {
		p.counter("frame_faults_total", float64(n), reason)
	}
	p.counter("back_pressure_total", float64(l.Pressed))
	p.counter("release_pauses_total", float64(l.Paused))
	p.counter("received_bytes_total", float64(l.BytesIn))
	p.counter("sent_bytes_total", float64(l.BytesOut))
	p.counter("requests_total", float64(l.Requests))
	p.counter("replies_total", float64(l.Replies))
	p.counter("undelivered_grants_total", float64(l.Undelivered))
	p.counter("writes_total", float64(l.Writes))
	p.runs(s)
	for i, busy := range l.Busy {
		p.counter("event_loop_busy_seconds_total", busy.Seconds(), strconv.Itoa(i))
	}
}

func (p page) runs(s *Snapshot) {
	l := &s.Loops
	cumulative, count := make(map[float64]uint64, len(l.RunBounds)), uint64(0)
	for i, bound := range l.RunBounds {
		count += l.RepliesPerWrite[i]
		cumulative[float64(bound)] = count
	}
	p.ch <- prometheus.MustNewConstHistogram(p.descs["write_replies"], count, float64(l.Replies), cumulative)
}

// raftRoles are the values of raftglue.Status.Role.
var raftRoles = []string{"leader", "candidate", "follower", "learner", "unformed", "removed", "stopped"}

// secondsOrNever is an age on the page; -1: none, which raftglue tells by any negative one.
func secondsOrNever(age time.Duration) float64 {
	if age < 0 {
		return -1
	}
	return age.Seconds()
}

func (p page) cluster(s *Snapshot) {
	c := s.Cluster
	if c == nil {
		return
	}
	for _, role := range raftRoles { // all of them: a sum over a role that nobody has must be 0, not absent
		p.flag("raft_role", c.Role == role, role)
	}
	p.gauge("raft_term", float64(c.Term))
	p.gauge("raft_leader_slot", float64(c.LeaderSlot))
	p.gauge("raft_commit_index", float64(c.CommitIndex))
	p.gauge("raft_applied_index", float64(c.AppliedIndex))
	p.gauge("raft_last_index", float64(c.LastIndex))
	p.gauge("raft_log_entries", float64(c.LogEntries))
	p.gauge("raft_log_bytes", float64(c.LogBytes))
	p.gauge("raft_snapshot_age_seconds", secondsOrNever(c.SnapshotAge))
	p.gauge("raft_entries_since_snapshot", float64(c.AppliedIndex-min(c.SnapshotIndex, c.AppliedIndex)))
	p.counter("raft_elections_won_total", float64(c.Elections))
	p.gauge("raft_records_in_flight", float64(c.RecordsInFlight))
	p.durations("raft_commit_duration_seconds", &c.Commits)
	p.gauge("raft_contact_age_seconds", secondsOrNever(c.SinceContact))
	for _, m := range c.Members {
		slot := strconv.Itoa(m.Slot)
		p.gauge("raft_member_info", 1, slot, m.Client, m.Incarnation, m.State)
		if m.Seen {
			p.flag("raft_member_live", m.Live, slot)
			p.gauge("raft_member_lag_entries", float64(m.Lag), slot)
		}
	}
}
