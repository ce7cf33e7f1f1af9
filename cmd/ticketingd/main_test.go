package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary stand in for the daemon.
func TestMain(m *testing.M) {
	if os.Getenv("TICKETINGD_TEST") != "" {
		os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// daemon is the command with a clean environment.
func daemon(environ []string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	// A process that was built with the race detector sleeps for a second before it exits unless told not to.
	cmd.Env = append([]string{"TICKETINGD_TEST=1", "GORACE=atexit_sleep_ms=0"}, environ...)
	return cmd
}

func TestStartErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct {
		environ, args []string
		code          int
		want          string
	}{
		{nil, []string{"--nonsense"}, 2, "unknown flag"},
		{[]string{"MAX_KEYS=0"}, nil, 2, `MAX_KEYS="0"`},
		{[]string{"BIND=0.0.0.0:0"}, nil, 2, "ALLOW_OPEN"},
		{[]string{"CLIENT_TOKENS=hunter2,,hunter2"}, nil, 2, "CLIENT_TOKENS"},
		{nil, []string{"--config", missing}, 1, "no such file"},
		{[]string{"BIND=" + taken.Addr().String(), "ADMIN_BIND="}, nil, 1, "port in use: " + taken.Addr().String()},
		{[]string{"BIND=127.0.0.1:0", "ADMIN_BIND=" + taken.Addr().String()}, nil, 1, "port in use: " + taken.Addr().String()},
		{[]string{"MAX_KEYS=0"}, []string{"--check-config"}, 2, "MAX_KEYS"},
	} {
		cmd := daemon(append(c.environ, "LOG_LEVEL=error"), c.args...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run() // the exit code below says it all
		line := errs.String()
		if cmd.ProcessState.ExitCode() != c.code || !strings.Contains(line, c.want) || strings.Count(line, "\n") != 1 || out.Len() > 0 ||
			!strings.HasPrefix(line, "ticketingd: ") || strings.Contains(line, "hunter2") {
			t.Errorf("%q %q: exit code %d, stderr %q, stdout %q; want %d and one line with %q", c.environ, c.args,
				cmd.ProcessState.ExitCode(), line, out.String(), c.code, c.want)
		}
	}
}

func TestPrints(t *testing.T) {
	for arg, want := range map[string]string{"--help": "MAX_TOTAL_WAITERS", "--version": "ticketingd", "--check-config": "settings are good"} {
		out, err := daemon(nil, arg).Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %q; want %q", arg, err, out, want)
		}
	}
}

// running is a daemon that serves.
type running struct {
	*exec.Cmd
	addr string        // of wire 1
	log  *bufio.Reader // its standard error

	stderr io.Closer // the end that log reads
}

// start runs the daemon until its log says that it serves.
func start(t *testing.T, environ ...string) running {
	t.Helper()
	cmd := daemon(append([]string{"BIND=127.0.0.1:0", "ADMIN_BIND="}, environ...)) // of two the last counts
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // gone already, as a rule
		_ = cmd.Wait()
	})
	d := running{Cmd: cmd, log: bufio.NewReader(errs), stderr: errs}
	_, rest, ok := strings.Cut(d.says(t, "msg=serving"), "wire_1=")
	if !ok {
		t.Fatal("the daemon does not say where it serves")
	}
	d.addr, _, _ = strings.Cut(strings.TrimSpace(rest), " ")
	return d
}

// says reads the log up to a line with word in it.
func (d running) says(t *testing.T, word string) string {
	t.Helper()
	for {
		line, err := d.log.ReadString('\n')
		if err != nil {
			t.Fatalf("the daemon ended before it said %q: %v", word, err)
		}
		if strings.Contains(line, word) {
			return line
		}
	}
}

func (d running) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := d.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func TestSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		d := start(t)
		d.signal(t, syscall.SIGHUP)
		d.says(t, "read again")
		begin := time.Now()
		d.signal(t, sig)
		if err := d.Wait(); err != nil || time.Since(begin) > 5*time.Second {
			t.Errorf("%v: %v after %v; want exit code 0 within 5 s", sig, err, time.Since(begin))
		}
	}
}

// client connects and authenticates to an open server.
func client(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte(strings.Repeat("A", 43) + "\n")); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSecondDaemonIsRefused(t *testing.T) {
	d := start(t)
	for _, environ := range [][]string{{"BIND=" + d.addr}, {"BIND=127.0.0.1:0", "LISTEN_V3=" + d.addr}} {
		cmd := daemon(append(environ, "ADMIN_BIND="))
		out, _ := cmd.CombinedOutput() // the exit code says it
		if cmd.ProcessState.ExitCode() != 1 || string(out) != "ticketingd: port in use: "+d.addr+"\n" {
			t.Errorf("%q: exit code %d, %q; want 1, port in use", environ, cmd.ProcessState.ExitCode(), out)
		}
	}
	client(t, d.addr) // the first one still serves
}

// The port can be bound again at once, though connections of the one before are in TIME_WAIT.
func TestRestartAtOnce(t *testing.T) {
	d := start(t)
	for range 2 {
		client(t, d.addr)
		d.signal(t, syscall.SIGTERM)
		if err := d.Wait(); err != nil {
			t.Fatal(err)
		}
		d = start(t, "BIND="+d.addr)
	}
}

// A client that does not leave holds a stop up for a second; a second signal does not wait for it.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	d := start(t)
	client(t, d.addr)
	d.signal(t, syscall.SIGTERM)
	d.says(t, "msg=stopping")
	begin := time.Now()
	d.signal(t, syscall.SIGTERM)
	if err := d.Wait(); err != nil || time.Since(begin) > 500*time.Millisecond {
		t.Errorf("%v after %v; want exit code 0 at once", err, time.Since(begin))
	}
}

// A daemon that crashes is to be started again; exit code 2 would say that it is not.
func TestCrashIsNoBadSetting(t *testing.T) {
	d := start(t)
	d.signal(t, syscall.SIGQUIT) // ends the runtime as a panic does
	dump, err := io.ReadAll(d.log)
	if err != nil {
		t.Fatal(err)
	}
	_ = d.Wait() // the state below says it
	if state, ok := d.ProcessState.Sys().(syscall.WaitStatus); !ok || !state.Signaled() || state.Signal() != syscall.SIGABRT {
		t.Errorf("%v; want the end by SIGABRT", d.ProcessState)
	}
	if !bytes.Contains(dump, []byte("goroutine ")) {
		t.Errorf("no stacks: %.200q", dump)
	}
}

func TestLogReaderMayLeave(t *testing.T) {
	d := start(t)
	client(t, d.addr)
	d.stderr.Close()
	d.signal(t, syscall.SIGHUP) // has a line written
	d.signal(t, syscall.SIGTERM)
	if err := d.Wait(); err != nil {
		t.Errorf("%v, want exit code 0", err)
	}
}
