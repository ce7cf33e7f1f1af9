package server

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// The settings that upstream's published chaos test passes, for one node and for a member of three.
func TestDropIn(t *testing.T) {
	s, warnings := mustLoad(t, nil, "socket_bind=127.0.0.1", "server_port=15225", "debug_mode=1")
	if s.Bind != "" || s.AdminBind != "" || s.Listen03 != "127.0.0.1:15225" || s.Advertise03 != "127.0.0.1:15225" || s.LogLevel != slog.LevelDebug || len(warnings) != 0 {
		t.Errorf("single: bind %q, admin %q, wire 0.3 %q told as %q, level %v, warnings %q", s.Bind, s.AdminBind, s.Listen03, s.Advertise03, s.LogLevel, warnings)
	}
	peers := "127.0.0.1:15225,127.0.0.1:15226,127.0.0.1:15227"
	s, warnings = mustLoad(t, nil, "socket_bind=127.0.0.1", "server_port=15226", "cluster_self=127.0.0.1:15226", "cluster_peers="+peers,
		"cluster_heartbeat_ms=50", "cluster_election_timeout_ms=300", "debug_mode=0", "client_tokens=0123456789abcdef")
	if s.Bind != "" || s.AdminBind != "" || s.Slot != 1 || !s.FormAuto || s.Advertise03 != "127.0.0.1:15226" ||
		s.PeerBind != "127.0.0.1:16226" || s.Election != 75*time.Millisecond || s.LogLevel != slog.LevelInfo || len(s.ClientTokens) != 1 {
		t.Errorf("member: %+v", s)
	}
	if len(warnings) != 3 || !strings.Contains(warnings[0], "ELECTION_MS is 75") || !strings.Contains(warnings[1], "cluster_heartbeat_ms") ||
		!strings.Contains(warnings[2], "FORM=auto") {
		t.Errorf("member: warnings %q, want the election time, the ignored heartbeat and FORM=auto", warnings)
	}
}

func TestDropInGivesWayToWhatIsSet(t *testing.T) {
	both := []string{"socket_bind=127.0.0.1", "server_port=15225"}
	s, _ := mustLoad(t, []string{"--form=explicit"}, append(both, "BIND=127.0.0.1:5225", "ADMIN_BIND=127.0.0.1:9000",
		"LISTEN_0_3=127.0.0.1:15225", "cluster_peers=127.0.0.1:5225,a:1,a:2")...)
	if s.Bind != "127.0.0.1:5225" || s.AdminBind != "127.0.0.1:9000" || s.FormAuto {
		t.Errorf("bind %q, admin %q, auto %v; want what was set", s.Bind, s.AdminBind, s.FormAuto)
	}
	file := writeFile(t, "conf", "socket_bind = 127.0.0.1\nserver_port = 15225\n")
	if s, _ = mustLoad(t, []string{"--config", file}); s.Listen03 != "127.0.0.1:15225" || s.Bind != "" {
		t.Errorf("from a file: wire 0.3 %q, bind %q", s.Listen03, s.Bind)
	}
}

// Upstream's time bounds the detection of a dead leader, which takes Raft up to three of its own timeouts.
func TestDropInElection(t *testing.T) {
	for _, c := range []struct {
		environ []string
		want    time.Duration
	}{
		{[]string{"cluster_election_timeout_ms=2000"}, 500 * time.Millisecond},
		{[]string{"cluster_election_timeout_ms=60000"}, 15 * time.Second},
		{[]string{"cluster_election_timeout_ms=20"}, 20 * time.Millisecond},
		{[]string{"cluster_election_timeout_ms=2000", "ELECTION_MS=2000"}, 2 * time.Second},
	} {
		if s, _ := mustLoad(t, nil, c.environ...); s.Election != c.want {
			t.Errorf("%q: election time %v, want %v", c.environ, s.Election, c.want)
		}
	}
}

func TestTwoNamesOfOneSetting(t *testing.T) {
	both := []string{"socket_bind=127.0.0.1", "server_port=15225"}
	for _, c := range []struct {
		args, environ []string
		ok            bool
	}{
		{nil, append(both, "LISTEN_0_3=127.0.0.1:15225"), true},
		{nil, append(both, "LISTEN_0_3=127.0.0.1:15226"), false},
		{[]string{"--listen-0-3=127.0.0.1:15226"}, both, false},
		{nil, []string{"socket_bind=127.0.0.1"}, false},
		{nil, []string{"server_port=15225"}, false},
		{nil, []string{"socket_bind=127.0.0.1", "server_port=x"}, false},
		{nil, []string{"cluster_self=a:1", "ADVERTISE=a:1"}, true},
		{nil, []string{"cluster_self=a:1", "ADVERTISE=a:2"}, false},
		{nil, []string{"cluster_self=a:1", "ADVERTISE_0_3=a:2"}, false},
		{nil, []string{"cluster_self=127.0.0.1:5225", "cluster_peers=127.0.0.1:5225,a:1,a:2", "CLUSTER=127.0.0.1:5225,a:1,a:2"}, true},
		{nil, []string{"cluster_self=127.0.0.1:5225", "cluster_peers=127.0.0.1:5225,a:1,a:2", "CLUSTER=127.0.0.1:5225,a:2,a:1"}, false},
		{nil, []string{"cluster_election_timeout_ms=300", "ELECTION_MS=300"}, true},
		{nil, []string{"cluster_election_timeout_ms=300", "ELECTION_MS=200"}, false},
		{nil, []string{"cluster_election_timeout_ms=5"}, false},
		{nil, []string{"cluster_election_timeout_ms=60001"}, false},
		{nil, []string{"cluster_election_timeout_ms=soon"}, false},
		{nil, []string{"debug_mode=1", "LOG_LEVEL=debug"}, true},
		{nil, []string{"debug_mode=1", "LOG_LEVEL=info"}, false},
		{nil, []string{"debug_mode=0", "LOG_LEVEL=info"}, true},
		{nil, []string{"debug_mode=perhaps"}, false},
		{nil, []string{"MAX_KEYS=10", "max_keys=10"}, true},
		{nil, []string{"MAX_KEYS=10", "max_keys=11"}, false},
		{[]string{"--max-keys=12"}, []string{"MAX_KEYS=10", "max_keys=11"}, false},
	} {
		_, _, err := Load(c.args, c.environ)
		if (err == nil) != c.ok || err != nil && ExitCode(err) != ExitSetting {
			t.Errorf("args %q, environment %q: error %v, want ok %v", c.args, c.environ, err, c.ok)
		}
	}
}

// A refusal shows the value as the user wrote it, not what it stands for.
func TestDebugModeIsRefusedAsWritten(t *testing.T) {
	_, _, err := Load(nil, []string{"debug_mode=1", "LOG_LEVEL=info"})
	if err == nil || !strings.Contains(err.Error(), `debug_mode="1"`) {
		t.Errorf("error %v, want one that names debug_mode=\"1\"", err)
	}
}
