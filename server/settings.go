package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Exit codes of the daemon. 0 is an end by a signal.
const (
	ExitFailure = 1 // port in use, unreadable file, anything that is not a setting
	ExitSetting = 2 // a bad setting
)

// Action is what the command line asks for.
type Action uint8

const (
	Serve       Action = iota // start the daemon
	ShowHelp                  // print Help and end
	ShowVersion               // print Version and end
	CheckConfig               // say whether the settings are good and end; nothing is started
)

// Settings are all settings of the daemon, checked and with their defaults filled in. They hold secrets only as Secret,
// so that printing or logging Settings gives none away. They are not changed after Load.
type Settings struct {
	Action Action

	// Client listeners, host:port; empty: off. At least one is on. Port 0 is chosen by Claim.
	Bind, ListenV3, Listen03, Listen01 string
	// What M and L tell on each text wire; empty where that listener is off. With port 0 the port is still 0.
	Advertise, Advertise03, Advertise01 string

	// ClientTokens are the tokens of CLIENT_TOKENS and CLIENT_TOKENS_FILE together, none twice; empty: an open server.
	// RereadTokens reads the file again.
	ClientTokens     []Secret
	ClientTokensFile string
	namedTokens      []Secret // those of CLIENT_TOKENS alone
	AllowOpen        bool

	TLSCert, TLSKey string // PEM files; both or none
	TLSMinVersion   uint16 // tls.VersionTLS12 or tls.VersionTLS13; for clients and peers

	MaxConnections  int // 1..8192
	MaxWaiters      int // 1..16384, of one key
	MaxTotalWaiters int // 1..65536
	MaxKeys         int // 1..16777216; single mode only
	FirstToken      uint64
	Grace           time.Duration // counts only if GraceSet; else see CLUSTER.md
	GraceSet        bool
	DataDir         string // empty: all state is in memory

	Election       time.Duration // Raft's heartbeat and election timeouts
	NodeName       string
	Cluster        []string // client addresses of all members in slot order; nil: single mode
	Slot           int      // place of Advertise in Cluster; -1 in single mode
	PeerPortOffset int
	PeerBind       string // empty in single mode
	FormAuto       bool   // FORM=auto
	PeerToken      Secret // zero: none
	PeerTokenFile  string

	PeerTLSCert, PeerTLSKey, PeerTLSCA string // PEM files; mutual with a CA

	AdminBind  string // empty: off
	EventLoops int    // 0: chosen from the number of cores
	LogLevel   slog.Level
	LogJSON    bool
}

// Clustered says whether the node is one of a cluster.
func (s *Settings) Clustered() bool { return len(s.Cluster) > 0 }

// Listener is one client listener.
type Listener struct {
	Setting string // the setting that names it
	Wire    string // as codec.Wire.Name: 1, 3, 0.3, 0.1
	Addr    string // host:port
}

// Listeners returns the client listeners that are on, BIND first.
func (s *Settings) Listeners() []Listener {
	var on []Listener
	for _, l := range []Listener{
		{"BIND", "1", s.Bind},
		{"LISTEN_V3", "3", s.ListenV3},
		{"LISTEN_0_3", "0.3", s.Listen03},
		{"LISTEN_0_1", "0.1", s.Listen01},
	} {
		if l.Addr != "" {
			on = append(on, l)
		}
	}
	return on
}

// SettingError is a setting that stops the start: one line that names it, its value unless it is a secret, and what is
// allowed.
type SettingError struct {
	Setting string // as the user wrote it: MAX_KEYS, --max-keys, max_keys in FILE
	Value   string // as given; not kept for a secret
	Secret  bool
	Allowed string
}

// maxShownValue bounds how much of a bad value an error repeats, in bytes.
const maxShownValue = 120

// Error is the line that the user reads.
func (e *SettingError) Error() string {
	if e.Secret {
		return e.Setting + ": " + e.Allowed
	}
	v := e.Value
	if len(v) > maxShownValue {
		v = v[:maxShownValue] + "…"
	}
	return fmt.Sprintf("%s=%q: %s", e.Setting, v, e.Allowed)
}

// ExitCode is the daemon's exit code for an error of Load or Run; 0 for nil.
func ExitCode(err error) int {
	var bad *SettingError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &bad):
		return ExitSetting
	}
	return ExitFailure
}

// Load reads the settings: flags over environment over the file of --config. args are the command line without the
// program's name, environ is as os.Environ gives it. Token files and TLS files are read too, so that what Load accepts can
// start. The warnings are for the log, one line each. The error is a *SettingError, or that of a file that cannot be read;
// ExitCode tells them apart. With ShowHelp or ShowVersion nothing else is looked at.
func Load(args []string, environ []string) (Settings, []string, error) {
	s := Settings{Slot: -1, TLSMinVersion: tls.VersionTLS13}
	src, err := gather(args, environ)
	if err != nil {
		return Settings{}, nil, err
	}
	s.Action = src.action
	if s.Action == ShowHelp || s.Action == ShowVersion {
		return s, nil, nil
	}
	for i := range table {
		row := &table[i]
		g, ok := src.values[row.name]
		value := row.start
		if ok {
			value = g.value
		}
		if value == "" && row.start == "" && !row.emptyCounts {
			continue // as if it were not given; where there is a default, an empty value is malformed
		}
		if err := row.set(&s, value); err != nil {
			return Settings{}, nil, row.bad(g, err)
		}
	}
	c := checker{s: &s, src: src, warnings: src.warnings}
	if err := c.run(); err != nil {
		return Settings{}, nil, err
	}
	return s, c.warnings, nil
}
