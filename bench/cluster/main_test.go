package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

type shown struct {
	Clients     map[string][]string `json:"clients"`
	Admin       []string            `json:"admin"`
	PIDs        []int               `json:"pids"`
	Fingerprint string              `json:"identity_fingerprint"`
}

// program is a running cluster, as a harness sees it.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

func build(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	out, err := exec.Command("go", "build", "-o", dir+"/", "../../cmd/ticketingd", "../../cmd/ticketing", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	return dir
}

func start(t *testing.T, bin string, args ...string) *program {
	t.Helper()
	p := &program{t: t, lines: make(chan string, 16)} // more lines than a test has changes
	p.cmd = exec.Command("../../scripts/cluster", append(args, "--json")...)
	p.cmd.Env = append(os.Environ(), "BIN_DIR="+bin)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the program
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		close(p.lines)
	}()
	return p
}

func (p *program) next(within time.Duration) (s shown) {
	p.t.Helper()
	select {
	case line := <-p.lines:
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			p.t.Fatalf("%q: %v", line, err)
		}
	case <-time.After(within):
		p.t.Fatalf("nothing printed for %v", within)
	}
	return s
}

func (p *program) stop(last shown) {
	p.t.Helper()
	p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("after SIGTERM: %v", err)
	}
	for slot, pid := range last.PIDs {
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			p.t.Errorf("slot %d: process %d is left", slot, pid)
		}
	}
}

func ready(t *testing.T, admin string) bool {
	resp, err := http.Get("http://" + admin + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("still not: " + what)
		}
	}
}

func TestDialogue(t *testing.T) {
	bin, data := build(t), filepath.Join(t.TempDir(), "data")
	p := start(t, bin, "--data", data)
	first := p.next(60 * time.Second)
	if len(first.Clients["v1"]) != 3 || len(first.Admin) != 3 || len(first.PIDs) != 3 || len(first.Fingerprint) != 64 {
		t.Fatalf("shows %+v", first)
	}
	syscall.Kill(first.PIDs[1], syscall.SIGKILL)
	until(t, "slot 1 is dead", func() bool { return syscall.Kill(first.PIDs[1], 0) == syscall.ESRCH })
	fmt.Fprintln(p.in, "restart 1")
	second := p.next(10 * time.Second)
	if second.PIDs[1] == first.PIDs[1] || second.PIDs[0] != first.PIDs[0] || second.Admin[1] != first.Admin[1] {
		t.Errorf("after a restart %+v, before %+v", second, first)
	}
	until(t, "slot 1 is ready", func() bool { return ready(t, second.Admin[1]) })
	// A node that lives is killed first; nonsense changes nothing.
	fmt.Fprintln(p.in, "restart 7")
	fmt.Fprintln(p.in, "restart 2")
	third := p.next(10 * time.Second)
	if third.PIDs[2] == second.PIDs[2] {
		t.Errorf("slot 2 was not restarted: %+v", third)
	}
	until(t, "slot 2 is ready", func() bool { return ready(t, third.Admin[2]) })
	p.stop(third)
	// With the same data the same cluster goes on.
	p = start(t, bin, "--data", data, "--supervise", "0.1")
	again := p.next(60 * time.Second)
	if again.Fingerprint != first.Fingerprint || again.Clients["v1"][0] != first.Clients["v1"][0] {
		t.Errorf("started again: %+v, before %+v", again, first)
	}
	syscall.Kill(again.PIDs[0], syscall.SIGKILL)
	last := p.next(10 * time.Second)
	if last.PIDs[0] == again.PIDs[0] {
		t.Errorf("a supervised node was not started again: %+v", last)
	}
	until(t, "slot 0 is ready", func() bool { return ready(t, last.Admin[0]) })
	p.stop(last)
}
