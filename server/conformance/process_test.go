package conformance

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// child is a daemon in a process of its own.
type child struct {
	*instance
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	// files is the process's limit of descriptors; 0: as the test's.
	files int
	err   error // of Wait
}

// spawn starts a daemon and waits until its admin page answers.
func spawn(t testing.TB, given ...string) *child {
	t.Helper()
	return spawnWith(t, 0, given...)
}

// spawnWith is spawn with a limit of descriptors.
func spawnWith(t testing.TB, files int, given ...string) *child {
	t.Helper()
	in, environ := environment(t, given)
	c := &child{instance: in, files: files}
	c.begin(t, environ)
	return c
}

// begin starts the process and waits until its admin page answers.
func (c *child) begin(t testing.TB, environ []string) {
	t.Helper()
	c.log, c.done = &logBuffer{}, make(chan struct{})
	c.cmd = exec.Command(daemonPath(t))
	if c.files > 0 {
		c.cmd = exec.Command("/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0"`, c.files), daemonPath(t))
	}
	c.cmd.Env, c.cmd.Stderr = environ, c.log
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := c.done
	cmd := c.cmd
	go func() { // ends with the process, which the test kills
		c.err = cmd.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // gone already, as a rule
		<-done
	})
	eventually(t, 30*time.Second, "the daemon answers", func() bool {
		code, _ := c.page("/healthz")
		select {
		case <-done:
			t.Fatalf("the daemon ended: %v: %s", c.err, c.log.String())
		default:
		}
		return code == 200
	})
}

func (c *child) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// exits waits for the end and returns the exit code.
func (c *child) exits(t testing.TB, limit time.Duration) int {
	t.Helper()
	select {
	case <-c.done:
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		t.Fatalf("the daemon goes on after %v: %s", limit, c.log.String())
		return 0
	}
}

type startError struct {
	given []string
	code  int
	want  []string // in the line
}

// startErrors are bad settings (2) and what else stops a start (1).
func startErrors(missing, taken string, running *instance, pair []string, file func(name, content string) string) []startError {
	return []startError{
		{[]string{"MAX_CONNECTIONS=0"}, 2, []string{"MAX_CONNECTIONS", `"0"`, "8192"}},
		{[]string{"MAX_CONNECTIONS=8193"}, 2, []string{"MAX_CONNECTIONS", "8193", "8192"}},
		{[]string{"MAX_WAITERS=0"}, 2, []string{"MAX_WAITERS", "16384"}},
		{[]string{"MAX_WAITERS=16385"}, 2, []string{"MAX_WAITERS", "16385", "16384"}},
		{[]string{"MAX_TOTAL_WAITERS=65537"}, 2, []string{"MAX_TOTAL_WAITERS", "65537", "65536"}},
		{[]string{"MAX_TOTAL_WAITERS=0"}, 2, []string{"MAX_TOTAL_WAITERS"}},
		{[]string{"MAX_KEYS=16777217"}, 2, []string{"MAX_KEYS", "16777216"}},
		{[]string{"MAX_KEYS=many"}, 2, []string{"MAX_KEYS", "many"}},
		{[]string{"FIRST_TOKEN=0"}, 2, []string{"FIRST_TOKEN"}},
		{[]string{"FIRST_TOKEN=18446744073709551615"}, 2, []string{"FIRST_TOKEN"}},
		{[]string{"TLS_MIN_VERSION=1.1"}, 2, []string{"TLS_MIN_VERSION", "1.2"}},
		{[]string{"TLS_CERT=" + missing}, 2, []string{"TLS_CERT", "TLS_KEY"}},
		{[]string{"LOG_LEVEL=loud"}, 2, []string{"LOG_LEVEL", "loud"}},
		{[]string{"FORM=maybe"}, 2, []string{"FORM", "maybe"}},
		{[]string{"BIND=nowhere"}, 2, []string{"BIND", "nowhere"}},
		{[]string{"BIND=0.0.0.0:0"}, 2, []string{"BIND", "ALLOW_OPEN"}},
		{[]string{"LISTEN_V3=0.0.0.0:0"}, 2, []string{"LISTEN_V3", "ALLOW_OPEN"}},
		{[]string{"LISTEN_0_3=[::]:0"}, 2, []string{"LISTEN_0_3", "ALLOW_OPEN"}},
		{[]string{"LISTEN_0_1=0.0.0.0:0"}, 2, []string{"LISTEN_0_1", "ALLOW_OPEN"}},
		{[]string{"CLIENT_TOKENS=hunter2,,b"}, 2, []string{"CLIENT_TOKENS"}},
		{[]string{"CLIENT_TOKENS=hunter2 x"}, 2, []string{"CLIENT_TOKENS"}},
		{[]string{"CLIENT_TOKENS=hunter2" + strings.Repeat("x", 250)}, 2, []string{"CLIENT_TOKENS", "256"}},
		{[]string{"CLIENT_TOKENS_FILE=" + missing}, 1, []string{"CLIENT_TOKENS_FILE", "no such file"}},
		{[]string{"CLUSTER=127.0.0.1:1,127.0.0.1:2"}, 2, []string{"CLUSTER", "3 or 5"}},
		{[]string{"BIND=" + taken}, 1, []string{"port in use", taken}},
		{[]string{"LISTEN_0_3=" + taken}, 1, []string{"port in use", taken}},
		{[]string{"ADMIN_BIND=" + taken}, 1, []string{"port in use", taken}},
		{[]string{"BIND=" + running.addr["v1"]}, 1, []string{"port in use", running.addr["v1"]}},
		{[]string{"LISTEN_V3=" + running.addr["0.1"]}, 1, []string{"port in use", running.addr["0.1"]}},
		{[]string{"BIND=192.0.2.1:5225", "CLIENT_TOKENS=" + goodToken}, 1, []string{"192.0.2.1:5225"}},
		{[]string{pair[0], "TLS_KEY=" + missing}, 1, []string{"TLS_KEY", "no such file"}},
		{[]string{pair[0], "TLS_KEY=" + file("key", "hunter2")}, 2, []string{"TLS"}},
		{[]string{"DATA_DIR=" + file("a file", "x")}, 1, []string{"a file"}},
		{[]string{"cluster_self=127.0.0.1:1", "ADVERTISE=127.0.0.1:2"}, 2, []string{"ADVERTISE"}},
		{[]string{"MAX_KEYS=5", "max_keys=6"}, 2, []string{"max_keys"}},
	}
}

// OPERATIONS.md: exit codes, and one line on standard error that names what is wrong and never a secret.
func TestStartErrors(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() }) // after the subtests, which go on behind this function
	running := start(t)
	dir := t.TempDir()
	pair := writePair(t, dir, "x")
	missing := filepath.Join(dir, "missing")
	file := func(name, content string) string {
		replace(t, filepath.Join(dir, name), []byte(content))
		return filepath.Join(dir, name)
	}
	for _, c := range startErrors(missing, taken.Addr().String(), running, pair, file) {
		t.Run(strings.Join(c.given, " ")[:min(60, len(strings.Join(c.given, " ")))], func(t *testing.T) {
			t.Parallel()
			_, environ := environment(t, c.given)
			cmd := exec.Command(daemonPath(t))
			var out, errs bytes.Buffer
			cmd.Env, cmd.Stdout, cmd.Stderr = append(environ, "LOG_LEVEL=error"), &out, &errs
			if strings.HasPrefix(c.given[0], "LOG_LEVEL") {
				cmd.Env = environ
			}
			timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() }) // it started: the code tells
			_ = cmd.Run()                                                              // as the code does
			timer.Stop()
			line := errs.String()
			if cmd.ProcessState.ExitCode() != c.code || strings.Count(line, "\n") != 1 || out.Len() > 0 || strings.Contains(line, "hunter2") {
				t.Errorf("exit code %d, stderr %q, stdout %q; want %d and one line", cmd.ProcessState.ExitCode(), line, out.String(), c.code)
			}
			for _, w := range c.want {
				if !strings.Contains(line, w) {
					t.Errorf("%q lacks %q", line, w)
				}
			}
		})
	}
}

// Off loopback without tokens a daemon starts only with ALLOW_OPEN, and says so.
func TestAllowOpen(t *testing.T) {
	t.Parallel()
	port := freePort(t, 0)
	c := spawn(t, fmt.Sprintf("BIND=0.0.0.0:%d", port), "ALLOW_OPEN=true")
	c.addr["v1"] = fmt.Sprintf("127.0.0.1:%d", port)
	c.dial(t, "v1").grant(1, 1, 5, "k")
	if !strings.Contains(c.log.String(), "level=WARN") {
		t.Errorf("no warning: %s", c.log.String())
	}
}

// A second daemon on the same port is refused, and the first does not notice; after a kill -9 the port is free at once.
func TestOnePortOneDaemon(t *testing.T) {
	t.Parallel()
	first := spawn(t)
	for _, w := range wires {
		_, environ := environment(t, []string{listeners[w] + "=" + first.addr[w]})
		cmd := exec.Command(daemonPath(t))
		cmd.Env = environ
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "port in use") {
			t.Errorf("second daemon on wire %s: exit code %d, %s", w, cmd.ProcessState.ExitCode(), out)
		}
	}
	first.dial(t, "v1").grant(1, 1, 5, "k")
	first.signal(t, syscall.SIGKILL)
	<-first.done
	spawn(t, "BIND="+first.addr["v1"]).dial(t, "v1").grant(1, 1, 5, "k")
}

// PROTOCOL.md section 7, on every wire, with waiters, held keys, an unfinished frame, a connection that does not read and
// one that is not authenticated: exit code 0 within 5 s.
func TestTermination(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		for _, overTLS := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/tls=%v", sig, overTLS), func(t *testing.T) {
				t.Parallel()
				var given []string
				if overTLS {
					given = writePair(t, t.TempDir(), "end")
				}
				d := spawn(t, given...)
				holders, waiters := map[string]*client{}, map[string]*client{}
				for _, w := range wires {
					holders[w], waiters[w] = d.dial(t, w), d.dial(t, w)
					holders[w].grant(1, 1, 30, "k"+w)
					waiters[w].send(waiters[w].wire.AppendAcquire(nil, 2, 30, 30, []byte("k"+w)))
					waiters[w].grant(3, 1, 30, "l"+w) // behind the one that waits
				}
				deaf, err := d.login(t, "v1", "")
				if err != nil {
					t.Fatal(err)
				}
				_ = deaf.conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
				for err == nil { // until nothing is taken any more
					_, err = deaf.conn.Write(deaf.wire.AppendRelease(nil, 0, 1<<60, make128()))
				}
				t.Log(err, d.log.String())
				stranger := bufio.NewReader(d.connect(t, "v1"))
				challenge(t, stranger)
				holders["v1"].send([]byte("A\x00"))
				begin := time.Now()
				d.signal(t, sig)
				for _, w := range wires {
					last := []byte("Enot_active\n")
					switch w {
					case "3":
						waiters[w].want(failed(w, 2, "3"))
						last = nil
					case "v1", "0.3":
						waiters[w].want(refused(w, 'B', 2, "k"+w))
					}
					for _, c := range []*client{waiters[w], holders[w]} {
						if last != nil {
							c.want(last)
						}
						c.wantEnd()
					}
				}
				if got := rest(t, stranger); got != "" {
					t.Errorf("the unauthenticated connection got %q, want the end without a byte", got)
				}
				if code := d.exits(t, 5*time.Second+slack(begin)); code != 0 {
					t.Errorf("exit code %d, want 0: %s", code, d.log.String())
				}
				wantTook(t, begin, 0, 5*time.Second)
			})
		}
	}
}

// Who waits at a stop is told in order of arrival, whatever the keys; on 0.1 nobody is, nor who is refused behind a waiter.
func TestTerminationTellsWaitersInOrder(t *testing.T) {
	t.Parallel()
	d := spawn(t, "MAX_WAITERS=2")
	waiters := map[string]*client{}
	for _, w := range wires {
		c := d.dial(t, w)
		c.grant(1, 1, 30, "k"+w)
		c.grant(1, 1, 30, "l"+w)
		for id, key := range []string{2: "k", 3: "l", 4: "k"} {
			if key != "" {
				c.send(c.wire.AppendAcquire(nil, uint64(id), 30, 30, []byte(key+w)))
			}
		}
		if w == "0.1" {
			c.send(c.wire.AppendAcquire(nil, 5, 30, 30, []byte("k"+w))) // a T, held back
		}
		c.grant(6, 1, 30, "m"+w) // behind those that wait
		waiters[w] = c
	}
	d.signal(t, syscall.SIGTERM)
	for w, c := range waiters {
		for id, key := range []string{2: "k", 3: "l", 4: "k"} {
			switch {
			case key == "" || w == "0.1":
			case w == "3":
				c.want(failed(w, uint64(id), "3"))
			default:
				c.want(refused(w, 'B', uint64(id), key+w))
			}
		}
		if w != "3" {
			c.want([]byte("Enot_active\n"))
		}
		c.wantEnd()
	}
}

// A second signal ends it at once, though a client does not take its last words.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	d := spawn(t)
	deaf, err := d.login(t, "v1", "")
	if err != nil {
		t.Fatal(err)
	}
	// No more than it takes: a flood behind back-pressure is cut off.
	few := bytes.Repeat(deaf.wire.AppendRelease(nil, 0, 1<<60, make128()), 100)
	eventually(t, answerLimit, "back-pressure", func() bool {
		if _, err := deaf.conn.Write(few); err != nil {
			t.Fatal(err)
		}
		return d.metric(t, "ticketing_back_pressure_total") > 0
	})
	begin := time.Now()
	// At once, since a stop takes a second only; of another kind, since two of one kind become one.
	d.signal(t, syscall.SIGTERM)
	d.signal(t, syscall.SIGINT)
	if code := d.exits(t, 5*time.Second); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	wantTook(t, begin, 0, 700*time.Millisecond)
}

// With 64 descriptors and three times as many connections the process goes on, honest clients are served all through it,
// and afterwards so is everybody.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	d := spawnWith(t, 64)
	honest := map[string]*client{}
	for _, w := range wires {
		honest[w] = d.dial(t, w)
	}
	var crowd []net.Conn
	for i := range 200 {
		conn, err := net.DialTimeout("tcp", d.addr[wires[i%4]], answerLimit)
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, conn)
		if i%20 == 0 {
			for _, w := range wires {
				key := fmt.Sprint("honest", w)
				honest[w].release(uint64(i+1), honest[w].grant(uint64(i+1), 1, 5, key), key)
			}
		}
	}
	for _, conn := range crowd {
		conn.Close()
	}
	for _, w := range wires {
		eventually(t, answerLimit, "a newcomer is served", func() bool {
			c, err := d.login(t, w, "")
			if err == nil {
				c.listen()
				c.grant(1, 1, 5, "new"+w)
			}
			return err == nil
		})
	}
	select {
	case <-d.done:
		t.Errorf("the daemon ended: %v: %s", d.err, d.log.String())
	default:
	}
}

// No secret in the command line, the log at its most talkative, or an admin page.
func TestNoSecretShows(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	replace(t, file, []byte(otherToken+"\n"))
	d := spawn(t, "CLIENT_TOKENS="+goodToken, "CLIENT_TOKENS_FILE="+file, "PEER_TOKEN=peer-secret-0123456789", "LOG_LEVEL=debug")
	d.dial(t, "v1").grant(1, 1, 5, "k")
	for _, w := range wires { // wrong ones too
		if _, err := d.login(t, w, "wrong-secret-0123456789"); w == "3" && err == nil {
			t.Error("a wrong token got in")
		}
	}
	d.signal(t, syscall.SIGHUP)
	eventually(t, answerLimit, "tokens read again", func() bool { return strings.Contains(d.log.String(), "read again") })
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", d.cmd.Process.Pid))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	shown := map[string]string{"cmdline": string(line)}
	for _, p := range []string{"/metrics", "/status", "/healthz", "/readyz"} {
		_, shown[p] = d.page(p)
	}
	d.signal(t, syscall.SIGTERM)
	d.exits(t, 5*time.Second)
	shown["log"] = d.log.String()
	for where, text := range shown {
		for _, secret := range []string{goodToken, otherToken, "peer-secret", "wrong-secret"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows %q", where, secret)
			}
		}
	}
}
