package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"
)

// Ranges of the numbers, inclusive. The hard caps are those of PROTOCOL.md section 5.
const (
	maxConnectionsCap  = 8192
	maxWaitersCap      = 16384
	maxTotalWaitersCap = 65536
	maxKeysCap         = 16777216
	lastFirstToken     = 1<<64 - 2
	maxGraceSeconds    = 65535 // the longest lease that any wire can ask for
	minElectionMs      = 20    // the leader lease is half of it, and Raft takes no less than 5 ms
	maxElectionMs      = 60000
	maxPortOffset      = 60000
	maxEventLoops      = 64
	maxAddressBytes    = 180 // an M frame of 192 bytes must hold it
	maxNodeNameBytes   = 255
)

// row is one setting: the one place where its name, default, range and meaning stand. Flag, environment, file, --help and
// the table of docs/OPERATIONS.md follow from it.
type row struct {
	name  string // upper case; the flag and the key of the file follow from it
	start string // value set when none is given; empty: nothing is set
	// shown is the default as --help and the documents tell it, where start does not say it.
	shown       string
	allowed     string
	help        string
	secret      bool // no flag, and the value is never shown
	boolean     bool // the flag needs no value
	emptyCounts bool // an empty value is a value (off), not the absence of one
	set         func(s *Settings, value string) error
}

func (r *row) flag() string { return "--" + strings.ReplaceAll(strings.ToLower(r.name), "_", "-") }
func (r *row) key() string  { return strings.ToLower(r.name) }

// defaultText is the default as a person reads it.
func (r *row) defaultText() string {
	switch {
	case r.shown != "":
		return r.shown
	case r.start == "":
		return "none"
	}
	return r.start
}

// bad makes the user's line of an error of set.
func (r *row) bad(g given, err error) error {
	var file *fileError
	if errors.As(err, &file) {
		return err
	}
	return &SettingError{Setting: g.label(r.name), Value: g.value, Secret: r.secret, Allowed: err.Error()}
}

var table = []row{
	{name: "BIND", start: "127.0.0.1:5225", allowed: "host:port; port 0: any free one; empty: off", emptyCounts: true,
		help: "client listener, wire 1", set: listen(func(s *Settings) *string { return &s.Bind })},
	{name: "LISTEN_V3", allowed: "host:port", help: "client listener, wire 3",
		set: listen(func(s *Settings) *string { return &s.ListenV3 })},
	{name: "LISTEN_0_3", allowed: "host:port", help: "client listener, wire 0.3",
		set: listen(func(s *Settings) *string { return &s.Listen03 })},
	{name: "LISTEN_0_1", allowed: "host:port", help: "client listener, wire 0.1",
		set: listen(func(s *Settings) *string { return &s.Listen01 })},
	{name: "ADVERTISE", shown: "as `BIND`", allowed: "host:port", help: "client address told to clients on wire 1; in a cluster one of `CLUSTER`",
		set: address(func(s *Settings) *string { return &s.Advertise })},
	{name: "ADVERTISE_0_3", shown: "as `LISTEN_0_3`", allowed: "host:port", help: "client address told to clients on wire 0.3",
		set: address(func(s *Settings) *string { return &s.Advertise03 })},
	{name: "ADVERTISE_0_1", shown: "as `LISTEN_0_1`", allowed: "host:port", help: "client address told to clients on wire 0.1",
		set: address(func(s *Settings) *string { return &s.Advertise01 })},
	{name: "CLIENT_TOKENS", allowed: "comma-separated, 1..256 bytes each, no white space or control characters, 1000 at most", secret: true,
		help: "accepted client tokens", set: func(s *Settings, v string) (err error) {
			s.namedTokens, err = splitTokens(v)
			return err
		}},
	{name: "CLIENT_TOKENS_FILE", allowed: "file, one token a line", help: "further client tokens; read again on SIGHUP",
		set: text(func(s *Settings) *string { return &s.ClientTokensFile })},
	{name: "ALLOW_OPEN", start: "false", allowed: "true or false", boolean: true,
		help: "allow a client listener off loopback without tokens", set: func(s *Settings, v string) (err error) {
			s.AllowOpen, err = parseBool(v)
			return err
		}},
	{name: "TLS_CERT", allowed: "PEM file; with `TLS_KEY`", help: "certificate chain of the client listeners; read again on SIGHUP and on change",
		set: text(func(s *Settings) *string { return &s.TLSCert })},
	{name: "TLS_KEY", allowed: "PEM file; with `TLS_CERT`", help: "its private key",
		set: text(func(s *Settings) *string { return &s.TLSKey })},
	{name: "TLS_MIN_VERSION", start: "1.3", allowed: "1.2 or 1.3", help: "oldest TLS version that is spoken", set: setTLSMinVersion},
	{name: "MAX_CONNECTIONS", start: "1024", allowed: span(1, maxConnectionsCap), help: "client connections, all listeners together",
		set: number(1, maxConnectionsCap, func(s *Settings, n int) { s.MaxConnections = n })},
	{name: "MAX_WAITERS", start: "2048", allowed: span(1, maxWaitersCap), help: "waiters of one key",
		set: number(1, maxWaitersCap, func(s *Settings, n int) { s.MaxWaiters = n })},
	{name: "MAX_TOTAL_WAITERS", start: "16384", allowed: span(1, maxTotalWaitersCap), help: "waiters in all",
		set: number(1, maxTotalWaitersCap, func(s *Settings, n int) { s.MaxTotalWaiters = n })},
	{name: "MAX_KEYS", start: "1048576", allowed: span(1, maxKeysCap), help: "active keys; single mode only",
		set: number(1, maxKeysCap, func(s *Settings, n int) { s.MaxKeys = n })},
	{name: "FIRST_TOKEN", start: "1", allowed: "1..18446744073709551614", help: "single mode: first token to issue; a stored counter counts where it is higher",
		set: setFirstToken},
	{name: "GRACE", shown: "longest lease that may be forgotten", allowed: span(0, maxGraceSeconds) + " seconds",
		help: "seconds without a grant after a start that may have forgotten holders",
		set: number(0, maxGraceSeconds, func(s *Settings, n int) {
			s.Grace, s.GraceSet = time.Duration(n)*time.Second, true
		})},
	{name: "DATA_DIR", allowed: "directory", help: "durable mode; without it all state is in memory",
		set: text(func(s *Settings) *string { return &s.DataDir })},
	{name: "ELECTION_MS", start: "200", allowed: span(minElectionMs, maxElectionMs), help: "Raft's heartbeat and election timeouts in milliseconds; the leader lease is half of it",
		set: number(minElectionMs, maxElectionMs, func(s *Settings, n int) {
			s.Election = time.Duration(n) * time.Millisecond
		})},
	{name: "NODE_NAME", shown: "host name", allowed: "1..255 printable ASCII characters, no space", help: "name in logs and in the cluster", set: setNodeName},
	{name: "CLUSTER", allowed: "3 or 5 different host:port, comma-separated", help: "client addresses of all members, the same list in the same order on every node; without it: single mode",
		set: setCluster},
	{name: "PEER_PORT_OFFSET", start: "1000", allowed: span(1, maxPortOffset), help: "a member's peer port is its client port plus this",
		set: number(1, maxPortOffset, func(s *Settings, n int) { s.PeerPortOffset = n })},
	{name: "PEER_BIND", shown: "host of `BIND`, port + offset", allowed: "host:port", help: "peer listener",
		set: listen(func(s *Settings) *string { return &s.PeerBind })},
	{name: "FORM", start: "explicit", allowed: "explicit or auto", help: "explicit: the cluster is formed by `ticketing init`; auto: by itself",
		set: func(s *Settings, v string) (err error) {
			s.FormAuto, err = oneOf(v, "explicit", "auto")
			return err
		}},
	{name: "PEER_TOKEN", allowed: "1..256 bytes, no white space or control characters", secret: true, help: "shared secret of the members",
		set: func(s *Settings, v string) error {
			s.PeerToken = NewSecret(v)
			return checkToken(s.PeerToken.Bytes())
		}},
	{name: "PEER_TOKEN_FILE", allowed: "file with one line", help: "the same from a file; one of the two",
		set: text(func(s *Settings) *string { return &s.PeerTokenFile })},
	{name: "PEER_TLS_CERT", allowed: "PEM file; with `PEER_TLS_KEY`", help: "certificate chain shown to other members",
		set: text(func(s *Settings) *string { return &s.PeerTLSCert })},
	{name: "PEER_TLS_KEY", allowed: "PEM file; with `PEER_TLS_CERT`", help: "its private key",
		set: text(func(s *Settings) *string { return &s.PeerTLSKey })},
	{name: "PEER_TLS_CA", allowed: "PEM file; with `PEER_TLS_CERT`", help: "authorities that members' certificates must come from; makes TLS between members mutual",
		set: text(func(s *Settings) *string { return &s.PeerTLSCA })},
	{name: "ADMIN_BIND", start: "", shown: "`127.0.0.1`, port of `BIND` + 55", allowed: "host:port; empty: off", emptyCounts: true,
		help: "HTTP, read-only: /metrics, /healthz, /readyz, /status", set: listen(func(s *Settings) *string { return &s.AdminBind })},
	{name: "EVENT_LOOPS", start: "0", allowed: span(0, maxEventLoops), help: "event loops; 0: chosen from the number of cores, one on two; one takes all requests in their order of arrival",
		set: number(0, maxEventLoops, func(s *Settings, n int) { s.EventLoops = n })},
	{name: "LOG_LEVEL", start: "info", allowed: "debug, info, warn or error", help: "least severe level that is logged", set: setLogLevel},
	{name: "LOG_FORMAT", start: "text", allowed: "text or json", help: "form of the log lines",
		set: func(s *Settings, v string) (err error) {
			s.LogJSON, err = oneOf(v, "text", "json")
			return err
		}},
}

func span(low, high int) string { return fmt.Sprintf("%d..%d", low, high) }

func number(low, high int, set func(s *Settings, n int)) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < low || n > high {
			return fmt.Errorf("must be a whole number, %d..%d", low, high)
		}
		set(s, n)
		return nil
	}
}

func text(field func(*Settings) *string) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		*field(s) = v
		return nil
	}
}

func listen(field func(*Settings) *string) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		*field(s) = v
		if v == "" {
			return nil
		}
		if _, _, ok := splitAddress(v); !ok {
			return errors.New("must be host:port, port 0..65535")
		}
		return nil
	}
}

// address is for what other machines are told: a host that means something to them, and a port above 0.
func address(field func(*Settings) *string) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		*field(s) = v
		return checkAddress(v)
	}
}

func checkAddress(v string) error {
	host, port, ok := splitAddress(v)
	if !ok || host == "" || port == 0 || len(v) > maxAddressBytes {
		return fmt.Errorf("must be host:port that others can connect to, port 1..65535, %d bytes at most", maxAddressBytes)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return errors.New("must be an address that others can connect to, not the one that means all interfaces")
	}
	return nil
}

func splitAddress(v string) (host string, port int, ok bool) {
	host, digits, err := net.SplitHostPort(v)
	if err != nil || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	return host, int(n), err == nil
}

func oneOf(v, no, yes string) (bool, error) {
	if v != no && v != yes {
		return false, fmt.Errorf("must be %s or %s", no, yes)
	}
	return v == yes, nil
}

func parseBool(v string) (bool, error) {
	switch strings.ToLower(v) {
	case "true", "1", "yes", "on":
		return true, nil
	case "false", "0", "no", "off":
		return false, nil
	}
	return false, errors.New("must be true or false")
}

func setTLSMinVersion(s *Settings, v string) error {
	switch v {
	case "1.2":
		s.TLSMinVersion = tls.VersionTLS12
	case "1.3":
		s.TLSMinVersion = tls.VersionTLS13
	default:
		return errors.New("must be 1.2 or 1.3")
	}
	return nil
}

func setFirstToken(s *Settings, v string) error {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil || n == 0 || n > lastFirstToken {
		return fmt.Errorf("must be a whole number, 1..%d", uint64(lastFirstToken))
	}
	s.FirstToken = n
	return nil
}

func setNodeName(s *Settings, v string) error {
	if len(v) > maxNodeNameBytes || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("must be 1..%d printable ASCII characters without a space", maxNodeNameBytes)
	}
	s.NodeName = v
	return nil
}

func setCluster(s *Settings, v string) error {
	members := strings.Split(v, ",")
	seen := make(map[string]bool, len(members))
	for i, m := range members {
		m = strings.TrimSpace(m)
		if err := checkAddress(m); err != nil {
			return fmt.Errorf("member %d %w", i, err)
		}
		if seen[m] {
			return fmt.Errorf("member %d stands there twice", i)
		}
		seen[m], members[i] = true, m
	}
	if len(members) != 3 && len(members) != 5 {
		return fmt.Errorf("has %d members; must be 3 or 5: an even number survives no more losses than one member less, and 7 make every grant slower", len(members))
	}
	s.Cluster = members
	return nil
}

func setLogLevel(s *Settings, v string) error {
	switch strings.ToLower(v) {
	case "debug":
		s.LogLevel = slog.LevelDebug
	case "info":
		s.LogLevel = slog.LevelInfo
	case "warn":
		s.LogLevel = slog.LevelWarn
	case "error":
		s.LogLevel = slog.LevelError
	default:
		return errors.New("must be debug, info, warn or error")
	}
	return nil
}
