// Package conformance holds the server against the pages of its protocol: it decides whether what comes over a socket is
// what PROTOCOL.md, WIRES.md and OPERATIONS.md say, line by line, and refuses to know how the server does it. Servers run in
// the test's process where settings are enough, and as child processes where signals, exit codes and limits matter.
package conformance

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/server"
)

// parallelTests is how many tests run at once: they wait for time limits, not for a processor.
const parallelTests = "48"

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(parallelTests); err != nil {
			panic(err)
		}
	}
	go measure() // ends with the process
	code := m.Run()
	for _, in := range shared.all {
		in.srv.Stop()
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir) // a leftover in the temporary directory harms nobody
	}
	os.Exit(code)
}

// wires are the four, by the names that the tests use.
var wires = []string{"v1", "3", "0.3", "0.1"}

// listeners are their settings.
var listeners = map[string]string{"v1": "BIND", "3": "LISTEN_V3", "0.3": "LISTEN_0_3", "0.1": "LISTEN_0_1"}

// instance is a server, in this process or in one of its own.
type instance struct {
	addr  map[string]string // by wire
	admin string
	tls   bool
	token string // what clients authenticate with if they are not told otherwise
	srv   *server.Server
	// spread has every client come from an address of its own, so that wrong digests hold nobody else back.
	spread bool
	// fingerprint is a cluster's, which clients of wire 3 sign.
	fingerprint [32]byte
	log         *logBuffer
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// The ports of this process lie below those that the system gives to outgoing connections, and start at a place of their
// own, far from that of the next process, since other test processes may run at the same time. None is given twice.
var ports = struct {
	sync.Mutex
	next  int
	given map[int]bool
}{next: os.Getpid() * 7919 % 20000, given: map[int]bool{}}

// freePort finds a port of loopback that nobody listens on or was given, and port+offset likewise.
func freePort(t testing.TB, offset int) int {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	for range 5000 {
		ports.next++
		p := 10000 + ports.next%20000
		if ports.given[p] || ports.given[p+offset] || !portFree(p) || offset > 0 && !portFree(p+offset) {
			continue
		}
		ports.given[p], ports.given[p+offset] = true, true
		return p
	}
	t.Fatal("no free port")
	return 0
}

func portFree(p int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// environment puts the settings together: all four wires and the admin pages on ports of their own, and what is given
// above that.
func environment(t testing.TB, given []string) (in *instance, environ []string) {
	t.Helper()
	in = &instance{addr: map[string]string{}}
	values := map[string]string{"ADMIN_BIND": fmt.Sprintf("127.0.0.1:%d", freePort(t, 0)), "LOG_LEVEL": "info"}
	for _, w := range wires {
		values[listeners[w]] = fmt.Sprintf("127.0.0.1:%d", freePort(t, 0))
	}
	for _, g := range given {
		name, value, _ := strings.Cut(g, "=")
		values[name] = value
	}
	for _, w := range wires {
		if in.addr[w] = values[listeners[w]]; in.addr[w] == "" {
			delete(values, listeners[w])
		}
	}
	in.admin = values["ADMIN_BIND"]
	in.tls = values["TLS_CERT"] != ""
	if tokens := values["CLIENT_TOKENS"]; tokens != "" {
		in.token, _, _ = strings.Cut(tokens, ",")
	}
	for name, value := range values {
		environ = append(environ, name+"="+value)
	}
	return in, environ
}

// launch starts a server in this process.
func launch(t testing.TB, given ...string) *instance {
	t.Helper()
	for try := 1; ; try++ {
		in, environ := environment(t, given)
		settings, _, err := server.Load(nil, environ)
		if err != nil {
			t.Fatalf("settings %q: %v", given, err)
		}
		in.log = &logBuffer{}
		in.srv, err = server.Start(settings, slog.New(slog.NewTextHandler(in.log, nil)))
		var taken *server.PortInUseError
		switch {
		case err == nil:
			return in
		case !errors.As(err, &taken) || try == 5: // another process may have been quicker
			t.Fatalf("start with %q: %v", given, err)
		}
	}
}

// start is launch for one test.
func start(t testing.TB, given ...string) *instance {
	t.Helper()
	in := launch(t, given...)
	t.Cleanup(in.srv.Stop)
	return in
}

var shared struct {
	sync.Mutex
	all map[bool]*instance // by TLS
	dir string
	bin string
}

// common is a server with default settings that all tests may use at once, each with keys of its own.
func common(t testing.TB, tls bool) *instance {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if in := shared.all[tls]; in != nil {
		return in
	}
	given := []string{"MAX_CONNECTIONS=4096"}
	if tls {
		given = append(given, commonPair(t)...)
	}
	in := launch(t, given...)
	if shared.all == nil {
		shared.all = map[bool]*instance{}
	}
	shared.all[tls] = in
	return in
}

// sharedDir is a directory for the life of the process. The caller has shared's lock.
func sharedDir(t testing.TB) string {
	t.Helper()
	if shared.dir == "" {
		dir, err := os.MkdirTemp("", "conformance")
		if err != nil {
			t.Fatal(err)
		}
		shared.dir = dir
	}
	return shared.dir
}

// daemonPath is the daemon, built once.
func daemonPath(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.bin == "" {
		path := filepath.Join(sharedDir(t), "ticketingd")
		out, err := exec.Command("go", "build", "-o", path, "github.com/ticketing-go/ticketing/cmd/ticketingd").CombinedOutput()
		if err != nil {
			t.Fatalf("go build: %v: %s", err, out)
		}
		shared.bin = path
	}
	return shared.bin
}

// eventually polls until ok holds, or fails the test with what.
func eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(limit)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		<-tick.C
	}
}
