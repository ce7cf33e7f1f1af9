// Command ticketing is the command line. This file decides which command runs and the exit codes; cluster.go and
// status.go are the commands. All runs on the main goroutine.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// world is a command's surroundings.
type world struct {
	environ func(string) (string, bool)
	out     io.Writer
	errs    io.Writer
}

// Exit codes, as the daemon's.
const (
	exitGood  = 0
	exitBad   = 1 // asked and refused, or nobody answered
	exitUsage = 2 // a bad flag or setting
)

type command struct {
	name, usage, does string
	run               func(w *world, args []string) error
}

func commands() []command {
	return []command{
		{"init", "[--peer ADDR] [--first-token N [--grace SECONDS]]", "form the cluster, once, when all members are up", initCluster},
		{"init --abandon", "[--peer ADDR]", "clear the promises that an init left behind which did not end", nil},
		{"members", "[--peer ADDR] [--json]", "show the members of the cluster", members},
		{"members replace", "[--peer ADDR] SLOT ADDRESS", "give a slot to the node with that client address", nil},
		{"members remove", "[--peer ADDR] SLOT", "take the member in that slot out", nil},
		{"status", "[--admin ADDR] [--json]", "show a node's state and the fingerprint of its fencing domain", status},
	}
}

// errUsage marks what is wrong with the command line itself.
var errUsage = errors.New("usage")

func main() {
	os.Exit(run(&world{os.LookupEnv, os.Stdout, os.Stderr}, os.Args[1:]))
}

func run(w *world, args []string) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		usage(w.out)
		if len(args) == 0 {
			return exitUsage
		}
		return exitGood
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		err := c.run(w, args[1:])
		switch {
		case err == nil:
			return exitGood
		case errors.Is(err, errUsage):
			fmt.Fprintln(w.errs, "ticketing:", err)
			return exitUsage
		default:
			fmt.Fprintln(w.errs, "ticketing:", err)
			return exitBad
		}
	}
	fmt.Fprintf(w.errs, "ticketing: unknown command %q; ticketing --help lists them\n", args[0])
	return exitUsage
}

func usage(out io.Writer) {
	fmt.Fprintln(out, "usage: ticketing COMMAND")
	for _, c := range commands() {
		fmt.Fprintf(out, "  %s %s\n      %s\n", c.name, c.usage, c.does)
	}
	fmt.Fprint(out, `
Commands for the cluster speak to a node's peer port: --peer, or the first member of CLUSTER that answers, its port plus
PEER_PORT_OFFSET. From the environment: PEER_TOKEN or PEER_TOKEN_FILE, PEER_TLS_CERT, PEER_TLS_KEY, PEER_TLS_CA.
`)
}

// setting reads a setting from the environment, in upper or lower case.
func (w *world) setting(name string) string {
	v, ok := w.environ(name)
	if !ok {
		v, _ = w.environ(lower(name))
	}
	return v
}

func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
