// Package daemon runs a server as a process of its own on a free loopback port, and reads from outside what it uses:
// metrics, heap, descriptors, memory. It decides when the process counts as ready, idle and stopped; it refuses to know
// what the server does. A Process may be used by several goroutines.
package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ticketing-go/ticketing/bench/frames"
)

// Packages of the two servers, for Build.
const (
	Product = "github.com/ticketing-go/ticketing/cmd/ticketingd"
	Ceiling = "github.com/ticketing-go/ticketing/bench/cmd/ceiling"
)

const (
	startTimeout = 10 * time.Second
	stopTimeout  = 7 * time.Second // a daemon stops within 5 s (PROTOCOL.md section 7)
	logBytes     = 32 << 10        // what is kept of the end of standard error
)

// Errors of Start and Stop.
var (
	ErrNotReady = errors.New("daemon: not ready in time")
	ErrExited   = errors.New("daemon: exited by itself")
	ErrKilled   = errors.New("daemon: did not stop in time and was killed")
)

// Options of a start.
type Options struct {
	Bin       string
	Addr      string   // client listener of the product; empty: a free port
	Args      []string // only the ceiling has any
	Env       []string // settings, NAME=value; nothing else is inherited but PATH, HOME and TMPDIR
	Token     string   // client token; empty: none
	OpenFiles int      // limit of file descriptors, hard and soft; 0: as it is
	NoAdmin   bool     // the server has no admin listener
}

// Process is a running server.
type Process struct {
	Addr  string // client listener, 127.0.0.1:port
	Admin string // admin listener; empty: none
	Token string
	PID   int

	cmd    *exec.Cmd
	log    *tail
	exited chan struct{} // closed when the process has ended
	result error         // of the process; set before exited is closed
}

// Build compiles a package of this module into the folder dir and returns the path of the program.
func Build(ctx context.Context, pkg, dir string) (string, error) {
	bin := dir + "/" + pkg[strings.LastIndexByte(pkg, '/')+1:]
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, pkg).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return bin, nil
}

// StartProduct starts ticketingd and returns when it has greeted a connection and answered on its admin page.
func StartProduct(o Options) (*Process, error) {
	addr, err := o.Addr, error(nil)
	if addr == "" {
		if addr, err = freeAddr(); err != nil {
			return nil, err
		}
	}
	admin := ""
	if !o.NoAdmin {
		if admin, err = freeAddr(); err != nil {
			return nil, err
		}
	}
	o.Env = append([]string{"BIND=" + addr, "ADMIN_BIND=" + admin}, o.Env...)
	return start(o, addr, admin)
}

// StartCeiling starts the reference server and returns when it has greeted a connection.
func StartCeiling(o Options) (*Process, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	o.Args = append([]string{"-bind", addr}, o.Args...)
	return start(o, addr, "")
}

// freeAddr is a loopback address that was free a moment ago.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func start(o Options, addr, admin string) (*Process, error) {
	cmd := exec.Command(o.Bin, o.Args...)
	if o.OpenFiles > 0 {
		// Only a shell can lower the limit of the child alone. It replaces itself: the process id stays.
		script := "ulimit -n " + strconv.Itoa(o.OpenFiles) + ` && exec "$0" "$@"`
		cmd = exec.Command("/bin/sh", append([]string{"-c", script, o.Bin}, o.Args...)...)
	}
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	if o.Token != "" {
		cmd.Env = append(cmd.Env, "CLIENT_TOKENS="+o.Token)
	}
	cmd.Env = append(cmd.Env, o.Env...)
	p := &Process{Addr: addr, Admin: admin, Token: o.Token, cmd: cmd, log: new(tail), exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.PID = cmd.Process.Pid
	go func() { // ends with the process
		p.result = cmd.Wait()
		close(p.exited)
	}()
	if err := p.awaitReady(); err != nil {
		p.Stop()
		return nil, fmt.Errorf("%w\n%s", err, p.Log())
	}
	return p, nil
}

// awaitReady waits until the process greets clients and its admin page, if any, answers.
func (p *Process) awaitReady() error {
	greeted := false
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); {
		greeted = greeted || p.greets()
		if greeted {
			if p.Admin == "" {
				return nil
			}
			if _, err := p.Metrics(); err == nil {
				return nil
			}
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%w: %v", ErrExited, p.result)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return ErrNotReady
}

func (p *Process) greets() bool {
	c, err := frames.Dial(p.Addr, "", time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.Answer(nil, nil, time.Second)
	return err == nil
}

// Exited is closed when the process has ended, for whatever reason.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Alive says whether the process still runs.
func (p *Process) Alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Log is the end of what the process has written to its standard streams.
func (p *Process) Log() string { return p.log.String() }

// Stop asks the process to stop and waits for it. It is an error if it had ended before, exits with another code than 0,
// or must be killed.
func (p *Process) Stop() error {
	if !p.Alive() {
		return fmt.Errorf("%w: %v", ErrExited, p.result)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return p.result
	case <-time.After(stopTimeout):
	}
	p.cmd.Process.Kill()
	<-p.exited
	return ErrKilled
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - logBytes; over > 0 {
		t.buf = bytes.Clone(t.buf[over:])
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
