package server

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// Help is the text of --help: every setting with its default and what is allowed.
func Help() string {
	var b strings.Builder
	b.WriteString(`ticketingd serves distributed locks with fencing tokens.

Usage: ticketingd [--NAME VALUE ...]

  --config FILE    read settings from FILE: lines "key = value" or "key: value", keys in lower case, # comments
  --check-config   check the settings and end; exit code 0 or 2
  --version        print the version and end
  --help           print this and end

Flags win over the environment, the environment over the file. In the environment a setting has the name below, in upper
or in lower case. A secret has no flag.

`)
	for i := range table {
		r := &table[i]
		head := r.flag()
		if r.secret {
			head = "(no flag)"
		}
		fmt.Fprintf(&b, "  %-18s %s\n      %s\n      default: %s; allowed: %s\n", r.name, head,
			plain(r.help), plain(r.defaultText()), plain(r.allowed))
	}
	b.WriteString("\nUnderstood as well, as the upstream daemon 0.3 is started: " + strings.Join(upstreamNames, ", ") + ".\n")
	return b.String()
}

// plain takes the marks of Markdown out.
func plain(s string) string { return strings.ReplaceAll(s, "`", "") }

// Version says what was built. commit is empty where the build did not see a repository.
func Version() (version, commit string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", ""
	}
	version = info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = s.Value
		}
	}
	return version, commit
}
