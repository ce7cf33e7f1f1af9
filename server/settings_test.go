package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func mustLoad(t *testing.T, args []string, environ ...string) (Settings, []string) {
	t.Helper()
	s, warnings, err := Load(args, environ)
	if err != nil {
		t.Fatalf("Load(%q, %q): %v", args, environ, err)
	}
	return s, warnings
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaults(t *testing.T) {
	s, warnings := mustLoad(t, nil)
	if len(warnings) > 0 {
		t.Errorf("warnings %q, want none", warnings)
	}
	host, _ := os.Hostname()
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"Bind", s.Bind, "127.0.0.1:5225"}, {"Advertise", s.Advertise, "127.0.0.1:5225"}, {"Advertise03", s.Advertise03, ""},
		{"AdminBind", s.AdminBind, "127.0.0.1:5280"}, {"MaxConnections", s.MaxConnections, 1024},
		{"MaxWaiters", s.MaxWaiters, 2048}, {"MaxTotalWaiters", s.MaxTotalWaiters, 16384}, {"MaxKeys", s.MaxKeys, 1048576},
		{"FirstToken", s.FirstToken, uint64(1)}, {"GraceSet", s.GraceSet, false}, {"Election", s.Election, 200 * time.Millisecond},
		{"NodeName", s.NodeName, host}, {"Clustered", s.Clustered(), false}, {"Slot", s.Slot, -1},
		{"PeerBind", s.PeerBind, ""}, {"FormAuto", s.FormAuto, false}, {"LogLevel", s.LogLevel, slog.LevelInfo},
		{"LogJSON", s.LogJSON, false}, {"TLSMinVersion", s.TLSMinVersion, uint16(0x0304)}, {"EventLoops", s.EventLoops, 0},
		{"AllowOpen", s.AllowOpen, false}, {"ClientTokens", len(s.ClientTokens), 0},
	} {
		if c.got != c.want {
			t.Errorf("%s is %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestFlagsWinOverEnvironmentOverFile(t *testing.T) {
	file := writeFile(t, "conf", "# all three\nmax_keys = 3\nmax_waiters: 30\nmax_connections=300\nbind: [::1]:7000\n\n")
	for _, c := range []struct {
		args                       []string
		environ                    []string
		keys, waiters, connections int
	}{
		{nil, nil, 3, 30, 300},
		{nil, []string{"MAX_KEYS=2", "max_waiters=20"}, 2, 20, 300},
		{[]string{"--max-keys", "1"}, []string{"MAX_KEYS=2", "MAX_WAITERS=20"}, 1, 20, 300},
		{[]string{"--max-keys=1", "-max-waiters=10"}, []string{"max_keys=2"}, 1, 10, 300},
	} {
		s, _ := mustLoad(t, append(c.args, "--config", file), c.environ...)
		if s.MaxKeys != c.keys || s.MaxWaiters != c.waiters || s.MaxConnections != c.connections || s.Bind != "[::1]:7000" {
			t.Errorf("args %q, environment %q: %d keys, %d waiters, %d connections, bind %s; want %d, %d, %d, [::1]:7000",
				c.args, c.environ, s.MaxKeys, s.MaxWaiters, s.MaxConnections, s.Bind, c.keys, c.waiters, c.connections)
		}
	}
}

// Every number, at both ends of its range and one beyond; the names of a bad one are in the error.
func TestRanges(t *testing.T) {
	for _, c := range []struct{ name, low, high, below, above string }{
		{"MAX_CONNECTIONS", "1", "8192", "0", "8193"},
		{"MAX_WAITERS", "1", "16384", "0", "16385"},
		{"MAX_TOTAL_WAITERS", "1", "65536", "0", "65537"},
		{"MAX_KEYS", "1", "16777216", "0", "16777217"},
		{"FIRST_TOKEN", "1", "18446744073709551614", "0", "18446744073709551615"},
		{"GRACE", "0", "65535", "-1", "65536"},
		{"ELECTION_MS", "20", "60000", "19", "60001"},
		{"PEER_PORT_OFFSET", "1", "60000", "0", "60001"},
		{"EVENT_LOOPS", "0", "64", "-1", "65"},
		{"LOG_LEVEL", "debug", "error", "all", "fatal"},
		{"LOG_FORMAT", "text", "json", "xml", "TEXT "},
		{"FORM", "explicit", "auto", "maybe", "AUTO"},
		{"ALLOW_OPEN", "false", "true", "maybe", "2"},
		{"TLS_MIN_VERSION", "1.2", "1.3", "1.1", "1.4"},
		{"BIND", "127.0.0.1:0", "127.0.0.1:65480", "127.0.0.1:-1", "127.0.0.1:65536"},
		{"NODE_NAME", "a", strings.Repeat("n", 255), "two words", strings.Repeat("n", 256)},
	} {
		for _, good := range []string{c.low, c.high} {
			mustLoad(t, nil, c.name+"="+good)
		}
		for _, bad := range []string{c.below, c.above, ""} {
			if bad == "" && (c.name == "GRACE" || c.name == "BIND" || c.name == "NODE_NAME") {
				continue // empty means the default, off, the default
			}
			_, _, err := Load(nil, []string{c.name + "=" + bad})
			if ExitCode(err) != ExitSetting {
				t.Errorf("%s=%s: error %v, want one with exit code %d", c.name, bad, err, ExitSetting)
				continue
			}
			if line := err.Error(); !strings.HasPrefix(line, c.name+"=") || strings.Contains(line, "\n") || !strings.Contains(line, "must be") {
				t.Errorf("%s=%s: %q does not say setting, value and what is allowed in one line", c.name, bad, line)
			}
		}
	}
}

func TestBadSettings(t *testing.T) {
	three := "CLUSTER=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
	for _, c := range []struct {
		args, environ []string
		want          string // part of the line
	}{
		{[]string{"--no-such"}, nil, "unknown flag"},
		{[]string{"max_keys=1"}, nil, "only flags"},
		{[]string{"--max-keys"}, nil, "needs a value"},
		{[]string{"--max-keys", "1", "--max-keys", "2"}, nil, "given twice"},
		{[]string{"--config", "one", "--config", "two"}, nil, "given twice"},
		{[]string{"--client-tokens=x"}, nil, "a secret has no flag"},
		{[]string{"--peer-token", "x"}, nil, "a secret has no flag"},
		{nil, []string{"MAX_KEYS=ten"}, "1..16777216"},
		{nil, []string{"MAX_KEYS= 10"}, "1..16777216"},
		{nil, []string{"BIND=5225"}, "host:port"},
		{nil, []string{"BIND=127.0.0.1:http"}, "host:port"},
		{nil, []string{"BIND="}, "all client listeners are off"},
		{nil, []string{"LISTEN_V3=127.0.0.1:5225"}, "BIND"},
		{nil, []string{"BIND=127.0.0.1:65500"}, "ADMIN_BIND"},
		{nil, []string{"ADMIN_BIND=127.0.0.1:5225"}, "the address of BIND too"},
		{nil, []string{"LISTEN_V3=127.0.0.1:5280"}, "the address of LISTEN_V3 too"},
		{nil, []string{"ADVERTISE=:5225"}, "others can connect"},
		{nil, []string{"ADVERTISE=0.0.0.0:5225"}, "all interfaces"},
		{nil, []string{"TLS_CERT=x"}, "TLS_KEY"},
		{nil, []string{"TLS_KEY=x"}, "TLS_CERT"},
		{nil, []string{"MAX_KEYS=1", "max_keys=2"}, "same setting"},
		{nil, []string{"CLUSTER=127.0.0.1:1,127.0.0.1:2"}, "3 or 5"},
		{nil, []string{"CLUSTER=a:1,a:2,a:3,a:4"}, "3 or 5"},
		{nil, []string{"CLUSTER=a:1,a:1,a:3"}, "twice"},
		{nil, []string{"CLUSTER=a:1,a:2,a"}, "member 2"},
		{nil, []string{three}, "one of CLUSTER"},
		{nil, []string{"CLUSTER=127.0.0.1:5225,127.0.0.1:2,127.0.0.1:65000"}, "beyond 65535"},
		{nil, []string{three, "BIND=127.0.0.1:0", "ADVERTISE=127.0.0.1:1"}, "PEER_BIND"},
		{nil, []string{three, "ADVERTISE=127.0.0.1:1", "PEER_BIND=0.0.0.0:6000"}, "PEER_TOKEN"},
		{nil, []string{three, "ADVERTISE=127.0.0.1:1", "PEER_BIND=0.0.0.0:6000", "ALLOW_OPEN=true"}, "PEER_TOKEN"},
		{nil, []string{three, "ADVERTISE=127.0.0.1:1", "PEER_TLS_CA=x"}, "PEER_TLS_CERT"},
		{nil, []string{three, "ADVERTISE=127.0.0.1:1", "PEER_TLS_CERT=x"}, "PEER_TLS_KEY"},
	} {
		_, _, err := Load(c.args, c.environ)
		if ExitCode(err) != ExitSetting || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("args %q, environment %q: error %v (exit code %d), want a line with %q and exit code 2", c.args, c.environ, err, ExitCode(err), c.want)
		}
	}
}

func TestBadFiles(t *testing.T) {
	for _, c := range []struct{ content, want string }{
		{"max_keys 10\n", "line 1"},
		{"# fine\nno_such = hunter2\n", "line 2: unknown setting \"no_such\""},
		{"MAX_KEYS = 10\n", "lower case"},
		{"max_keys = 10\nmax_keys = 10\n", "twice"},
		{"max_keys = 0\n", "max_keys in "},
		{"client_tokens = hunter2,,\n", "entry 2"},
		{"hunter2\n", "line 1"},
	} {
		_, _, err := Load([]string{"--config", writeFile(t, "conf", c.content)}, nil)
		if ExitCode(err) != ExitSetting || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("file %q: error %v, want one line with %q, exit code 2 and no value", c.content, err, c.want)
		}
	}
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct {
		args    []string
		environ string
	}{
		{[]string{"--config", missing}, ""},
		{nil, "CLIENT_TOKENS_FILE=" + missing},
		{[]string{"--tls-cert", missing, "--tls-key", missing}, ""},
	} {
		if _, _, err := Load(c.args, []string{c.environ}); ExitCode(err) != ExitFailure || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("args %q, environment %q: error %v, exit code %d, want exit code 1", c.args, c.environ, err, ExitCode(err))
		}
	}
}

func TestOffLoopback(t *testing.T) {
	for _, c := range []struct {
		environ []string
		ok      bool
		warns   int
	}{
		{[]string{"BIND=0.0.0.0:5225"}, false, 0},
		{[]string{"BIND=:5225"}, false, 0},
		{[]string{"BIND=example.org:5225"}, false, 0},
		{[]string{"LISTEN_V3=10.0.0.1:5226"}, false, 0},
		{[]string{"BIND=0.0.0.0:5225", "ALLOW_OPEN=true"}, true, 1},
		{[]string{"BIND=0.0.0.0:5225", "ALLOW_OPEN=false"}, false, 0},
		{[]string{"BIND=0.0.0.0:5225", "CLIENT_TOKENS=0123456789abcdef"}, true, 0},
		{[]string{"BIND=0.0.0.0:5225", "CLIENT_TOKENS="}, false, 0},
		{[]string{"BIND=localhost:5225"}, true, 0},
		{[]string{"BIND=[::1]:5225"}, true, 0},
		{[]string{"BIND=127.8.8.8:5225"}, true, 0},
		{[]string{"LISTEN_0_1=0.0.0.0:5227", "CLIENT_TOKENS=0123456789abcdef"}, true, 1},
		{[]string{"LISTEN_0_1=127.0.0.1:5227"}, true, 0},
		{[]string{"ADMIN_BIND=0.0.0.0:9000"}, true, 1},
	} {
		_, warnings, err := Load(nil, c.environ)
		if (err == nil) != c.ok || len(warnings) != c.warns {
			t.Errorf("%q: error %v, warnings %q; want ok %v and %d warnings", c.environ, err, warnings, c.ok, c.warns)
		}
	}
}

func TestClusterSettings(t *testing.T) {
	s, warnings := mustLoad(t, nil, "CLUSTER=10.0.0.1:5225, 10.0.0.2:5225,10.0.0.3:5225", "ADVERTISE=10.0.0.2:5225", "BIND=0.0.0.0:5225",
		"CLIENT_TOKENS=0123456789abcdef", "PEER_TOKEN=fedcba9876543210", "MAX_KEYS=7", "GRACE=9")
	if s.Slot != 1 || s.PeerBind != "0.0.0.0:6225" || len(s.Cluster) != 3 || s.Cluster[1] != "10.0.0.2:5225" {
		t.Errorf("slot %d, peer listener %s, members %q", s.Slot, s.PeerBind, s.Cluster)
	}
	if len(warnings) != 2 || !strings.Contains(warnings[0], "MAX_KEYS") || !strings.Contains(warnings[1], "init --grace") {
		t.Errorf("warnings %q, want one about MAX_KEYS and one about GRACE", warnings)
	}
	if _, warnings = mustLoad(t, nil, "PEER_BIND=127.0.0.1:1"); len(warnings) != 1 {
		t.Errorf("PEER_BIND in single mode: warnings %q, want one", warnings)
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	const secret = "correct-horse-battery"
	file := writeFile(t, "tokens", secret+"-in-file\n")
	s, _ := mustLoad(t, nil, "CLIENT_TOKENS="+secret, "CLIENT_TOKENS_FILE="+file, "PEER_TOKEN="+secret)
	s.PeerToken = NewSecret(secret)
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n", s)
		fmt.Fprintf(&out, verb+"\n", &s)
		fmt.Fprintf(&out, verb+"\n", s.PeerToken)
		fmt.Fprintf(&out, verb+"\n", s.ClientTokens)
	}
	log := NewLog(&s, &out)
	log.Error("all", "settings", s, "token", s.PeerToken, "tokens", s.ClientTokens)
	s.LogJSON = true
	NewLog(&s, &out).Error("all", "settings", s, "token", s.PeerToken, "tokens", s.ClientTokens)
	if err := json.NewEncoder(&out).Encode(s); err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{secret, fmt.Sprintf("%x", secret), strings.Trim(fmt.Sprint([]byte(secret)), "[]")} {
		if strings.Contains(out.String(), shown) {
			t.Errorf("a secret is shown as %q", shown)
		}
	}
	for _, environ := range [][]string{
		{"CLIENT_TOKENS=" + secret + " x"}, {"CLIENT_TOKENS=" + secret + ",,"}, {"PEER_TOKEN=" + secret + "\t"},
		{"CLIENT_TOKENS=" + secret, "client_tokens=" + secret + "2"},
		{"CLIENT_TOKENS=" + secret + strings.Repeat("a", 256)},
		{"CLIENT_TOKENS_FILE=" + writeFile(t, "bad", secret+"\n\n"+secret+"\n")},
		{"PEER_TOKEN_FILE=" + writeFile(t, "two", secret+"\nb\n"), "CLUSTER=127.0.0.1:5225,a:1,a:2"},
		{"PEER_TOKEN_FILE=" + file, "PEER_TOKEN=" + secret, "CLUSTER=127.0.0.1:5225,a:1,a:2"},
	} {
		_, _, err := Load(nil, environ)
		if ExitCode(err) != ExitSetting || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: error %v, want a setting error without the secret", environ, err)
		}
	}
}

func TestHelpAndActions(t *testing.T) {
	help := Help()
	for i := range table {
		r := &table[i]
		if !strings.Contains(help, "  "+r.name+" ") || r.help == "" || r.allowed == "" {
			t.Errorf("--help does not explain %s", r.name)
		}
		if strings.Contains(help, r.flag()+"\n") == r.secret {
			t.Errorf("--help: flag of %s listed: %v, secret: %v", r.name, !r.secret, r.secret)
		}
	}
	for _, c := range []struct {
		args []string
		want Action
	}{
		{nil, Serve}, {[]string{"--help"}, ShowHelp}, {[]string{"-h"}, ShowHelp}, {[]string{"--version"}, ShowVersion},
		{[]string{"--check-config"}, CheckConfig}, {[]string{"--max-keys", "5", "--help"}, ShowHelp},
	} {
		if s, _ := mustLoad(t, c.args); s.Action != c.want {
			t.Errorf("%q: action %d, want %d", c.args, s.Action, c.want)
		}
	}
	if _, _, err := Load([]string{"--check-config"}, []string{"MAX_KEYS=0"}); ExitCode(err) != ExitSetting {
		t.Errorf("--check-config with a bad setting: %v", err)
	}
}
