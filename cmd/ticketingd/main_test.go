package main

import (
	"bufio"
	"bytes"
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
	cmd.Env = append([]string{"TICKETINGD_TEST=1"}, environ...)
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

// start runs the daemon until its log says that it serves.
func start(t *testing.T, environ ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := daemon(append([]string{"BIND=127.0.0.1:0", "ADMIN_BIND="}, environ...))
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
	r := bufio.NewReader(errs)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("the daemon ended before it served: %v", err)
		}
		if strings.Contains(line, "msg=serving") {
			return cmd, r
		}
	}
}

func TestSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd, _ := start(t)
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || time.Since(begin) > 5*time.Second {
			t.Errorf("%v: %v after %v; want exit code 0 within 5 s", sig, err, time.Since(begin))
		}
	}
}
