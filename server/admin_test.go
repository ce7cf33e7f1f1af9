package server

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lni/goutils/leaktest"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ticketing-go/ticketing/eventloop"
	"github.com/ticketing-go/ticketing/locktable"
	"github.com/ticketing-go/ticketing/raftglue"
)

// pageSource is a source with a number of its own in every place, so that a mix-up shows.
type pageSource struct {
	mu     sync.Mutex
	reason string
}

func (s *pageSource) Ready() (bool, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason == "", s.reason
}

func (s *pageSource) set(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reason = reason
}

func (s *pageSource) Snapshot() Snapshot {
	snap := Snapshot{
		Node: "one", Mode: "cluster", Version: "v1", Commit: "abc", Fingerprint: [32]byte{0xab}, Uptime: 100 * time.Second,
		GraceLeft: 7 * time.Second, CertificateNotAfter: time.Unix(1234, 0),
		Table: locktable.Counts{
			Grants: 1001, Releases: 1002, NotHelds: 1003, Timeouts: 1004, BusyKeys: 1005, BusyWaiters: 1006, BusyKeyWaiters: 1007,
			BusySpent: 1008, BusyGrace: 1009, Expiries: 1010, Revocations: 1011, HandOvers: 1012, Reaffirms: 1013, Queued: 1014,
			Keys: 1015, Held: 1016, Waiters: 1017, KeysGateClosed: true,
		},
		IdleKeys: 0, Records: 1020, Entries: 1021, ApplyBusy: 25 * time.Second,
		InFlightAcquires: 1022, InFlightReleases: 1023, AcquiresGateClosed: true, BusyInFlight: 1024,
		Loops: eventloop.Stats{
			Connections: 1030, Unauthenticated: 1031, MaxConnections: 1032, Accepted: 1033, Authenticated: 1034, OverCap: 1035,
			Refused: 1036, Evicted: 1037, Revoked: 1038, Held: 1039, SlowCloses: 1040, Overruns: 1041, Pressed: 1042, Paused: 1043,
			BytesIn: 1044, BytesOut: 1045, Requests: 1046, Replies: 1047, Undelivered: 1048, Writes: 1049,
			HandshakeFailures: map[string]uint64{"wrong_answer": 1050}, FrameFaults: map[string]uint64{"bad_key": 1051},
			RunBounds: []int{1, 64}, RepliesPerWrite: []uint64{3, 4}, Busy: []time.Duration{time.Second, 2 * time.Second},
		},
		Cluster: &raftglue.Status{
			Role: "leader", Term: 1060, LeaderSlot: 2, CommitIndex: 1062, AppliedIndex: 1061, LastIndex: 1063, LogEntries: 1064,
			LogBytes: 1065, SnapshotIndex: 1000, Elections: 1066, RecordsInFlight: 1067, SinceContact: time.Second, SnapshotAge: -1,
			Members: []raftglue.Member{{Slot: 2, Client: "a:1", Incarnation: "xyz", State: "voter", Seen: true, Live: true, Lag: 1068}},
		},
	}
	snap.Waits.Observe(3 * time.Microsecond)
	snap.Holds.Observe(time.Second)
	snap.Batches.Observe(64 * time.Microsecond)
	snap.Cluster.Commits.Observe(time.Millisecond)
	return snap
}

func startPages(t *testing.T) (*pageSource, string) {
	t.Helper()
	src := &pageSource{}
	a, err := ListenAdmin("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.Serve(src, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		a.Stop(ctx)
		http.DefaultClient.CloseIdleConnections()
	})
	return src, "http://" + a.Addr()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestMetricsPage(t *testing.T) {
	_, url := startPages(t)
	_, body := get(t, url+"/metrics")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatalf("the page does not parse: %v", err)
	}
	for _, m := range metrics {
		f := families[metricPrefix+m.name]
		if f == nil || f.GetHelp() != m.help {
			t.Errorf("%s%s is missing, or its help is another", metricPrefix, m.name)
		}
	}
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, metricPrefix) {
			t.Errorf("promlint: %s: %s", p.Metric, p.Text)
		}
	}
	for _, line := range []string{
		"grants_total 1001", "releases_total 1002", "not_held_total 1003", "wait_timeouts_total 1004",
		`busy_total{reason="in_flight"} 1024`, `busy_total{reason="keys"} 1005`, `busy_total{reason="waiters"} 1006`,
		`busy_total{reason="key_waiters"} 1007`, `busy_total{reason="tokens_spent"} 1008`, `busy_total{reason="grace"} 1009`,
		"lease_expiries_total 1010", "revocations_total 1011", "hand_overs_total 1012", "reaffirms_total 1013", "queued_total 1014",
		"keys 1015", "keys_held 1016", "waiters 1017", `in_flight{kind="acquire"} 1022`, `in_flight{kind="release"} 1023`,
		`gate_closed{gate="acquires"} 1`, `gate_closed{gate="keys"} 1`, `gate_closed{gate="waiters"} 0`, "idle_keys_with_waiter 0",
		`wait_duration_seconds_bucket{le="2e-06"} 0`, `wait_duration_seconds_bucket{le="4e-06"} 1`, "wait_duration_seconds_sum 3e-06",
		"hold_duration_seconds_sum 1", `apply_batch_requests_bucket{le="63"} 0`, `apply_batch_requests_bucket{le="127"} 1`,
		"apply_batch_requests_sum 64", "apply_busy_seconds_total 25", "records_total 1020", "entries_total 1021",
		"connections 1030", `connections_closed_total{reason="slow"} 1040`, `handshake_failures_total{reason="wrong_answer"} 1050`,
		`frame_faults_total{reason="bad_key"} 1051`, "received_bytes_total 1044", "sent_bytes_total 1045", "writes_total 1049",
		`write_replies_bucket{le="1"} 3`, `write_replies_bucket{le="64"} 7`, "write_replies_count 7", `event_loop_busy_seconds_total{loop="1"} 2`,
		"tls_certificate_not_after_timestamp_seconds 1234", "grace_remaining_seconds 7", "ready 1", "raft_entries_since_snapshot 61",
		`raft_role{role="leader"} 1`, `raft_role{role="follower"} 0`, "raft_snapshot_age_seconds -1", "raft_term 1060", `raft_member_lag_entries{slot="2"} 1068`,
	} {
		if !strings.Contains(body, "\n"+metricPrefix+line+"\n") {
			t.Errorf("the page lacks %q", metricPrefix+line)
		}
	}
	for _, line := range []string{"go_goroutines ", "process_cpu_seconds_total "} {
		if !strings.Contains(body, "\n"+line) {
			t.Errorf("the page lacks %q", line)
		}
	}
}

func TestTwoServersShareNoMetrics(t *testing.T) {
	_, one := startPages(t)
	_, two := startPages(t) // a registry of the process would panic here
	for _, url := range []string{one, two} {
		if code, _ := get(t, url+"/metrics"); code != http.StatusOK {
			t.Errorf("%s: %d", url, code)
		}
	}
}

func TestHealthReadyStatus(t *testing.T) {
	src, url := startPages(t)
	if code, body := get(t, url+"/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("/healthz: %d %q", code, body)
	}
	if code, body := get(t, url+"/readyz"); code != 200 || body != "ready\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	src.set(GraceReason(41200 * time.Millisecond))
	if code, body := get(t, url+"/readyz"); code != 503 || !strings.Contains(body, "grace") || !strings.Contains(body, "42 seconds") {
		t.Errorf("/readyz in a grace: %d %q", code, body)
	}
	var page map[string]any
	_, body := get(t, url+"/status")
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"node": "one", "mode": "cluster", "ready": false, "keys": 1015.0, "waiters": 1017.0, "idle_keys_with_waiter": 0.0,
		"identity_fingerprint": "ab" + strings.Repeat("0", 62),
	} {
		if page[name] != want {
			t.Errorf("/status: %s is %v, want %v", name, page[name], want)
		}
	}
	if c, ok := page["cluster"].(map[string]any); !ok || c["role"] != "leader" {
		t.Errorf("/status: cluster is %v", page["cluster"])
	}
	for path, want := range map[string]int{"/": 404, "/debug/pprof/": 404, "/debug/vars": 404} {
		if code, _ := get(t, url+path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
}

func TestAdminOnlyReads(t *testing.T) {
	_, url := startPages(t)
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"} {
		req, _ := http.NewRequest(method, url+"/status", strings.NewReader("{}"))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d, Allow %q", method, resp.StatusCode, resp.Header.Get("Allow"))
		}
	}
	resp, err := http.Head(url + "/readyz")
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("HEAD: %v, %v", resp, err)
	}
}

// Sixteen silent connections hold every place; the next reader is served once they have timed out, and nothing is left.
func TestAdminIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the read timeout of 5 s")
	}
	_, url := startPages(t)
	var silent []net.Conn
	for range adminConnections {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	begin := time.Now()
	if code, _ := get(t, url+"/healthz"); code != 200 {
		t.Errorf("after silent connections: %d", code)
	}
	if took := time.Since(begin); took < adminReadTime-time.Second || took > adminReadTime+5*time.Second {
		t.Errorf("served after %v, want about %v", took, adminReadTime)
	}
	for _, c := range silent {
		c.Close()
	}
}

func TestAdminStops(t *testing.T) {
	defer leaktest.AfterTest(t)()
	a, err := ListenAdmin("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.Serve(&pageSource{}, slog.New(slog.DiscardHandler))
	if _, err := ListenAdmin(a.Addr()); ExitCode(err) != ExitFailure || !strings.Contains(err.Error(), "port in use") {
		t.Errorf("second listener on %s: %v, want port in use", a.Addr(), err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	a.Stop(ctx)
	if c, err := net.Dial("tcp", a.Addr()); err == nil {
		c.Close()
		t.Error("the listener is still there")
	}
}

// 0.0.0.0 is every address of IPv4, as it is for the client listeners, and none of IPv6.
func TestAdminTakesNoOtherFamily(t *testing.T) {
	a, err := ListenAdmin("0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Stop(t.Context())
	_, port, err := net.SplitHostPort(a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if c, err := net.Dial("tcp", "[::1]:"+port); err == nil {
		c.Close()
		t.Error("reached over IPv6")
	}
}

// A start that fails on the admin port has served nobody: it has not even begun with tokens.
func TestTakenAdminPortComesFirst(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := filepath.Join(t.TempDir(), "data")
	settings, _, err := Load(nil, []string{"BIND=127.0.0.1:0", "ADMIN_BIND=" + taken.Addr().String(), "DATA_DIR=" + dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(settings, slog.New(slog.DiscardHandler)); ExitCode(err) != ExitFailure || !strings.Contains(err.Error(), "port in use") {
		t.Errorf("%v, want port in use", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the data directory is there")
	}
}
