package server

import (
	"time"

	"github.com/ticketing-go/ticketing/eventloop"
	"github.com/ticketing-go/ticketing/locktable"
	"github.com/ticketing-go/ticketing/raftglue"
)

// Source tells the admin pages what goes on. Both methods may be called by several goroutines at once.
type Source interface {
	// Snapshot is the state of the moment, or nearly; it never changes afterwards.
	Snapshot() Snapshot
	// Ready says whether clients should be sent here; if not, why, in one line.
	Ready() (ok bool, reason string)
}

// Snapshot is everything that metrics and status pages show. It holds no secret and no key.
type Snapshot struct {
	Node    string // NODE_NAME
	Mode    string // single or cluster
	Version string
	Commit  string
	// Fingerprint is that of the fencing domain (WIRES.md section 3.1); zero: none, the cluster is not formed.
	Fingerprint [32]byte
	Uptime      time.Duration
	GraceLeft   time.Duration // 0: no grace
	// CertificateNotAfter is the end of the client certificate's validity; zero: no TLS.
	CertificateNotAfter time.Time

	Table locktable.Counts
	Waits locktable.Histogram // from acquire to grant, of those that queued
	Holds locktable.Histogram // from grant to release or expiry
	// IdleKeys counts free keys whose first waiter needs nothing else: it must be 0.
	IdleKeys int

	Records, Entries uint64              // proposed, and the entries in them
	Batches          locktable.Histogram // requests a drain of the rings, counted as microseconds
	ApplyBusy        time.Duration       // time that the apply goroutine did not sleep

	InFlightAcquires, InFlightReleases int
	AcquiresGateClosed                 bool
	BusyInFlight                       uint64 // acquires refused by that gate

	Loops eventloop.Stats

	Cluster *raftglue.Status // nil in single mode
}

// metric is one metric of the page: the one place of its name, labels and meaning. docs/OPERATIONS.md has the same table,
// and a test keeps them equal.
type metric struct {
	name   string // without the prefix
	labels []string
	help   string
}

// metricPrefix stands before every metric of ours.
const metricPrefix = "ticketing_"

// Labels that several metrics have.
var (
	byReason = []string{"reason"}
	bySlot   = []string{"slot"}
)

var metrics = []metric{
	{"build_info", []string{"version", "commit"}, "Always 1; what was built."},
	{"uptime_seconds", nil, "Time since the start."},
	{"ready", nil, "1 if /readyz is 200."},
	{"grace_remaining_seconds", nil, "Time until the first grant after a start that may have forgotten holders; 0: no grace."},
	{"tls_certificate_not_after_timestamp_seconds", nil, "End of the client certificate's validity, Unix time; absent without TLS."},

	{"grants_total", nil, "Acquires granted."},
	{"releases_total", nil, "Releases answered R."},
	{"not_held_total", nil, "Releases answered N: the token was gone."},
	{"wait_timeouts_total", nil, "Acquires answered T."},
	{"busy_total", byReason, "Acquires answered B. Reasons: in_flight, keys, waiters (gates), key_waiters (limit of one key), tokens_spent, grace."},
	{"lease_expiries_total", nil, "Leases that ran out."},
	{"revocations_total", nil, "Grants taken back because their A was never handed to the socket layer."},
	{"hand_overs_total", nil, "Keys handed from one holder to the next waiter in one step."},
	{"reaffirms_total", nil, "Acquires of wire 0.3 sent again that found their own grant."},
	{"queued_total", nil, "Acquires that joined a queue."},
	{"keys", nil, "Active keys: held or waited for."},
	{"keys_held", nil, "Keys held."},
	{"waiters", nil, "Acquires that wait."},
	{"in_flight", []string{"kind"}, "Commands read and not yet decided: acquire, release."},
	{"gate_closed", []string{"gate"}, "1 while a gate is closed: acquires, keys, waiters."},
	{"idle_keys_with_waiter", nil, "Free keys whose first waiter needs nothing else. Anything but 0 is a bug."},
	{"wait_duration_seconds", nil, "From acquire to grant, of acquires that queued."},
	{"hold_duration_seconds", nil, "From grant to release or expiry."},
	{"apply_batch_requests", nil, "Requests that the apply goroutine takes from one loop at once."},
	{"apply_busy_seconds_total", nil, "Time that the apply goroutine did not sleep: its rate is the busy share."},
	{"records_total", nil, "Records proposed."},
	{"entries_total", nil, "Entries in them."},

	{"connections", nil, "Client connections that are open."},
	{"connections_unauthenticated", nil, "Those that have not authenticated yet."},
	{"connections_limit", nil, "Most that may be open: MAX_CONNECTIONS, or less where the descriptor limit is lower."},
	{"connections_accepted_total", nil, "Connections taken in."},
	{"connections_authenticated_total", nil, "Connections that passed the handshake."},
	{"connections_closed_total", byReason, "Connections that the server closed. Reasons: over_limit, stopping, evicted (unauthenticated, made room), token_revoked, slow, overrun."},
	{"challenges_held_total", nil, "Challenges held back because of wrong digests from that address."},
	{"handshake_failures_total", byReason, "Connections that ended before they were authenticated."},
	{"frame_faults_total", byReason, "Connections ended by a bad frame."},
	{"back_pressure_total", nil, "Times a connection was not read because it did not take its replies."},
	{"release_pauses_total", nil, "Times a connection was not read because there was no room for its request."},
	{"received_bytes_total", nil, "Bytes read from client sockets."},
	{"sent_bytes_total", nil, "Bytes written to client sockets."},
	{"requests_total", nil, "Requests decoded."},
	{"replies_total", nil, "Replies written."},
	{"undelivered_grants_total", nil, "Grants whose session was gone before the write."},
	{"writes_total", nil, "Writes to client sockets; sent bytes per write is the quotient of the two rates."},
	{"write_replies", nil, "Replies in one write, of writes with any."},
	{"event_loop_busy_seconds_total", []string{"loop"}, "Time a loop spent in callbacks, writes included: its rate is the busy share."},

	{"raft_role", []string{"role"}, "1 for the node's role, 0 for the others: leader, candidate, follower, learner, unformed, removed, stopped."},
	{"raft_term", nil, "Raft's term."},
	{"raft_leader_slot", nil, "Slot of the leader that this node knows; -1: none."},
	{"raft_commit_index", nil, "Last entry known to be committed."},
	{"raft_applied_index", nil, "Last entry applied here."},
	{"raft_last_index", nil, "Last entry in the log."},
	{"raft_log_entries", nil, "Entries kept in the log."},
	{"raft_log_bytes", nil, "Their size."},
	{"raft_entries_since_snapshot", nil, "Entries applied since the last snapshot."},
	{"raft_snapshot_age_seconds", nil, "Age of the newest snapshot kept here; -1: none."},
	{"raft_elections_won_total", nil, "Elections that this node has won."},
	{"raft_records_in_flight", nil, "Records proposed here and not resolved."},
	{"raft_commit_duration_seconds", nil, "From the proposal of a record to its application."},
	{"raft_contact_age_seconds", nil, "Time since the leader was heard, on the leader since a majority was; -1: never."},
	{"raft_member_info", []string{"slot", "client", "incarnation", "state"}, "Always 1; one a member."},
	{"raft_member_live", bySlot, "Leader only: 1 if the member answers."},
	{"raft_member_lag_entries", bySlot, "Leader only: entries that the member is behind the commit index."},
}
