package server

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// given is one value with the place that it came from.
type given struct {
	value string
	from  string // the setting as the user wrote it there; empty: not given
}

func (g given) label(name string) string {
	if g.from == "" {
		return name
	}
	return g.from
}

// sources are the command line, the environment and the file, put together: one value a setting.
type sources struct {
	action   Action
	values   map[string]given // by the setting's name
	warnings []string
}

// fileError is a file that cannot be read.
type fileError struct {
	setting string
	err     error
}

func (e *fileError) Error() string { return e.setting + ": " + e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

func rowByName(name string) *row {
	for i := range table {
		if table[i].name == name {
			return &table[i]
		}
	}
	return nil
}

func gather(args, environ []string) (*sources, error) {
	src := &sources{values: make(map[string]given)}
	flags, config, err := src.readFlags(args)
	if err != nil || src.action == ShowHelp || src.action == ShowVersion {
		return src, err
	}
	env, upstream, err := readEnvironment(environ)
	if err != nil {
		return nil, err
	}
	if config != "" {
		file, upstreamInFile, err := readConfig(config)
		if err != nil {
			return nil, err
		}
		for name, g := range file {
			src.values[name] = g
		}
		for name, g := range upstreamInFile {
			if _, ok := upstream[name]; !ok {
				upstream[name] = g
			}
		}
	}
	for _, m := range []map[string]given{env, flags} {
		for name, g := range m {
			src.values[name] = g
		}
	}
	return src, src.adoptUpstream(upstream)
}

// readFlags takes --name value, --name=value and, for a setting that is true or false, --name alone; one dash is as good
// as two.
func (src *sources) readFlags(args []string) (values map[string]given, config string, err error) {
	values = make(map[string]given)
	for i := 0; i < len(args); i++ {
		name, value, hasValue := strings.Cut(args[i], "=")
		name = "--" + strings.TrimLeft(name, "-")
		if !strings.HasPrefix(args[i], "-") || name == "--" {
			return nil, "", &SettingError{Setting: "argument", Value: args[i], Allowed: "only flags are allowed; see --help"}
		}
		switch name {
		case "--help", "--h":
			src.action = ShowHelp
			return nil, "", nil
		case "--version":
			src.action = ShowVersion
			return nil, "", nil
		case "--check-config":
			src.action = CheckConfig
			continue
		}
		r, err := rowOfFlag(name)
		if err != nil {
			return nil, "", err
		}
		if !hasValue && r != nil && r.boolean {
			value = "true"
		} else if !hasValue {
			if i++; i == len(args) {
				return nil, "", &SettingError{Setting: name, Secret: true, Allowed: "needs a value"}
			}
			value = args[i]
		}
		if r == nil {
			if config != "" && config != value {
				return nil, "", &SettingError{Setting: name, Value: value, Allowed: fmt.Sprintf("given twice, also as %q", config)}
			}
			config = value
			continue
		}
		if old, ok := values[r.name]; ok && old.value != value {
			return nil, "", &SettingError{Setting: name, Value: value, Allowed: fmt.Sprintf("given twice, also as %q", old.value)}
		}
		values[r.name] = given{value, name}
	}
	return values, config, nil
}

// rowOfFlag is the setting of a flag; nil for --config.
func rowOfFlag(name string) (*row, error) {
	if name == "--config" {
		return nil, nil
	}
	for i := range table {
		r := &table[i]
		switch {
		case r.flag() != name:
		case r.secret:
			return nil, &SettingError{Setting: name, Secret: true, Allowed: fmt.Sprintf("a secret has no flag; use %s in the environment or %s_FILE", r.name, r.name)}
		default:
			return r, nil
		}
	}
	return nil, &SettingError{Setting: name, Secret: true, Allowed: "unknown flag; see --help"}
}

// readEnvironment finds each setting under its name in upper and in lower case, and upstream's names.
func readEnvironment(environ []string) (values, upstream map[string]given, err error) {
	all := make(map[string]string, len(environ))
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok {
			all[name] = value
		}
	}
	values, upstream = make(map[string]given), make(map[string]given)
	for i := range table {
		r := &table[i]
		upper, isUpper := all[r.name]
		lower, isLower := all[r.key()]
		switch {
		case isUpper && isLower && upper != lower:
			return nil, nil, &SettingError{Setting: r.key(), Value: lower, Secret: r.secret, Allowed: r.name + " is the same setting and has another value"}
		case isUpper:
			values[r.name] = given{upper, r.name}
		case isLower:
			values[r.name] = given{lower, r.key()}
		}
	}
	for _, name := range upstreamNames {
		if value, ok := all[name]; ok {
			upstream[name] = given{value, name}
		}
	}
	return values, upstream, nil
}

// readConfig reads a file of lines `key = value` or `key: value`. A line that is empty or starts with # says nothing. A
// value is what stands behind the separator, without the white space around it; there are no quotes. Errors never repeat
// a line, which may hold a secret.
func readConfig(path string) (values, upstream map[string]given, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, &fileError{"--config", err}
	}
	values, upstream = make(map[string]given), make(map[string]given)
	for i, line := range strings.Split(string(content), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		place := fmt.Sprintf("%s line %d", path, i+1)
		at := strings.IndexAny(line, "=:")
		if at < 0 {
			return nil, nil, &SettingError{Setting: place, Secret: true, Allowed: "must be key = value, key: value, or a # comment"}
		}
		key := strings.TrimSpace(line[:at])
		g := given{strings.TrimSpace(line[at+1:]), key + " in " + path}
		into, name := values, strings.ToUpper(key)
		switch r := rowByName(name); {
		case isUpstream(key):
			into, name = upstream, key
		case r == nil || r.key() != key:
			return nil, nil, &SettingError{Setting: place, Secret: true, Allowed: fmt.Sprintf("unknown setting %.60q; see --help for the names, here in lower case", key)}
		}
		if _, twice := into[name]; twice {
			return nil, nil, &SettingError{Setting: place, Secret: true, Allowed: key + " stands there twice"}
		}
		into[name] = g
	}
	return values, upstream, nil
}

// upstreamNames are the names that the upstream daemon 0.3 is started with and that are not settings of ours
// (OPERATIONS.md, drop-in).
var upstreamNames = []string{
	"socket_bind", "server_port", "cluster_self", "cluster_peers", "cluster_heartbeat_ms", "cluster_election_timeout_ms", "debug_mode",
}

func isUpstream(key string) bool {
	for _, name := range upstreamNames {
		if name == key {
			return true
		}
	}
	return false
}

// adoptUpstream turns upstream's names into settings.
func (src *sources) adoptUpstream(up map[string]given) error {
	host, hasHost := up["socket_bind"]
	port, hasPort := up["server_port"]
	if hasHost != hasPort {
		one, other := host, "server_port"
		if hasPort {
			one, other = port, "socket_bind"
		}
		return &SettingError{Setting: one.from, Value: one.value, Allowed: other + " must be given with it; both together are LISTEN_0_3"}
	}
	if hasHost {
		g := given{net.JoinHostPort(strings.Trim(host.value, "[]"), port.value), host.from + " and " + port.from}
		if err := src.adopt("LISTEN_0_3", g); err != nil {
			return err
		}
		src.suppose("BIND", "")
		src.suppose("ADMIN_BIND", "")
	}
	if g, ok := up["cluster_self"]; ok {
		if err := src.adopt("ADVERTISE", g); err != nil {
			return err
		}
		if err := src.adopt("ADVERTISE_0_3", g); err != nil {
			return err
		}
	}
	if g, ok := up["cluster_peers"]; ok {
		if err := src.adopt("CLUSTER", g); err != nil {
			return err
		}
		src.suppose("FORM", "auto")
	}
	if g, ok := up["cluster_election_timeout_ms"]; ok {
		if err := src.adoptElection(g); err != nil {
			return err
		}
	}
	if _, ok := up["cluster_heartbeat_ms"]; ok {
		src.warnings = append(src.warnings, "cluster_heartbeat_ms is ignored: the heartbeat follows from ELECTION_MS")
	}
	return src.adoptDebugMode(up)
}

// electionShare is how many of our election timeouts go into upstream's. Upstream has detected a dead leader when its
// timeout is over, and its chaos test allows an outage of twice that. Raft here needs up to three of ours: a follower's timer
// runs for one to two, is looked at only when it ends, and no pre-vote is given before that. One lost vote adds up to two.
const electionShare = 4

// adoptElection turns upstream's promise, a bound on detection, into Raft's timeout. Where ELECTION_MS is given too it
// counts as it stands, and must agree as written.
func (src *sources) adoptElection(g given) error {
	_, own := src.values["ELECTION_MS"]
	if err := src.adopt("ELECTION_MS", g); err != nil || own {
		return err
	}
	bound, err := strconv.Atoi(g.value)
	if err != nil || bound < minElectionMs || bound > maxElectionMs {
		return nil // refused with the table's words
	}
	share := max(bound/electionShare, minElectionMs)
	src.values["ELECTION_MS"] = given{strconv.Itoa(share), g.from}
	src.warnings = append(src.warnings, fmt.Sprintf("cluster_election_timeout_ms=%d bounds the detection of a dead leader: ELECTION_MS is %d", bound, share))
	return nil
}

func (src *sources) adoptDebugMode(up map[string]given) error {
	g, ok := up["debug_mode"]
	if !ok || g.value == "" {
		return nil
	}
	on, err := parseBool(g.value)
	if err != nil {
		return &SettingError{Setting: g.from, Value: g.value, Allowed: "must be 0 or 1"}
	}
	if !on {
		return nil
	}
	err = src.adopt("LOG_LEVEL", given{"debug", g.from})
	if e := (*SettingError)(nil); errors.As(err, &e) {
		e.Value = g.value
	}
	return err
}

// adopt takes a value that was given under another name. The setting's own name, wherever it was given, must agree.
func (src *sources) adopt(name string, g given) error {
	if own, ok := src.values[name]; ok && own.value != g.value {
		return &SettingError{Setting: g.from, Value: g.value, Allowed: fmt.Sprintf("is %s, which %s sets to %q", name, own.label(name), own.value)}
	}
	src.values[name] = g
	return nil
}

// suppose sets what follows from another setting, unless it was given.
func (src *sources) suppose(name, value string) {
	if _, ok := src.values[name]; !ok {
		src.values[name] = given{value: value}
	}
}

// readTokenFile reads tokens, one a line; the last line may lack its end.
func readTokenFile(setting, path string) ([]Secret, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, &fileError{setting, err}
	}
	var tokens []Secret
	for i, line := range bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n")) {
		if err := checkToken(line); err != nil {
			return nil, &SettingError{Setting: setting, Secret: true, Allowed: fmt.Sprintf("%s line %d %s", path, i+1, err)}
		}
		tokens = append(tokens, NewSecret(string(line)))
	}
	return tokens, nil
}
