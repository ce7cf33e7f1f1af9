// Package fleet starts, stops, kills and pauses the processes of a service under drill: one node, or the members of a
// cluster on loopback or in network namespaces. It decides which settings they get (OPERATIONS.md) and when they count as
// ready; it refuses to know what clients say to them. It ends no process that it has not started. A Fleet belongs to one
// goroutine; Node.Number may be read by any.
package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	peerOffset  = 1000
	adminOffset = 2000
	exitTimeout = 10 * time.Second
	formTimeout = 20 * time.Second
)

// Errors of a fleet.
var (
	ErrNotReady = errors.New("fleet: not ready in time")
	ErrRunning  = errors.New("fleet: still running")
)

// Options of a fleet.
type Options struct {
	Bin      string // the daemon
	CLI      string // the command line, which forms the cluster; empty: FORM=auto on the first start
	Nodes    int    // 1: single mode
	Dir      string // for logs, secrets and data; made by the caller, removed by the caller
	Durable  bool   // with DATA_DIR
	Election time.Duration
	Env      []string // further settings
	// Host is the address of a slot, and Prefix what its process is started with; nil: loopback and nothing.
	Host   func(slot int) string
	Prefix func(slot int) []string
}

// Fleet is a service under drill.
type Fleet struct {
	Options
	Nodes     []*Node
	Token     string // client token
	formed    bool
	peerToken string
}

// Node is one member, which may be started again and again.
type Node struct {
	Slot  int
	Addr  string // for clients
	admin string
	peer  string

	fleet  *Fleet
	starts atomic.Int32
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has been waited for
	log    *os.File
}

// New makes a fleet that is not started. Its ports are free when it is made.
func New(o Options) (*Fleet, error) {
	f := &Fleet{Options: o, Token: secret(), peerToken: secret()}
	for name, what := range map[string]string{"client": f.Token, "peer": f.peerToken} {
		if err := os.WriteFile(filepath.Join(o.Dir, name+".token"), []byte(what+"\n"), 0o600); err != nil {
			return nil, err
		}
	}
	if f.Host == nil {
		f.Host = func(int) string { return "127.0.0.1" }
	}
	base, err := freePorts(o.Nodes)
	if err != nil {
		return nil, err
	}
	at := func(slot, port int) string { return net.JoinHostPort(f.Host(slot), strconv.Itoa(port)) }
	for slot := range o.Nodes {
		port := base + slot
		f.Nodes = append(f.Nodes, &Node{Slot: slot, fleet: f, Addr: at(slot, port), peer: at(slot, port+peerOffset),
			admin: at(slot, port+adminOffset)})
	}
	return f, nil
}

// secret makes a token.
func secret() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// freePorts finds a first port such that it, the following ones and their peer and admin ports can be bound now.
func freePorts(n int) (base int, err error) {
	var last error
	for range 50 {
		var b [2]byte
		rand.Read(b[:])
		base = 20000 + (int(b[0])<<8|int(b[1]))%9000
		if last = bindable(base, n); last == nil {
			return base, nil
		}
	}
	return 0, fmt.Errorf("fleet: no free ports: %w", last)
}

func bindable(base, n int) error {
	for _, offset := range []int{0, peerOffset, adminOffset} {
		for i := range n {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+offset+i))
			if err != nil {
				return err
			}
			l.Close()
		}
	}
	return nil
}

// env are the settings of a slot.
func (f *Fleet) env(n *Node, form string) []string {
	env := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir(),
		"BIND=" + n.Addr, "ADMIN_BIND=" + n.admin, "CLIENT_TOKENS_FILE=" + filepath.Join(f.Dir, "client.token"),
		"NODE_NAME=slot-" + strconv.Itoa(n.Slot)}, f.Env...)
	if f.Durable {
		env = append(env, "DATA_DIR="+filepath.Join(f.Dir, "data-"+strconv.Itoa(n.Slot)))
	}
	if len(f.Nodes) == 1 {
		return env
	}
	var members []string
	for _, m := range f.Nodes {
		members = append(members, m.Addr)
	}
	return append(env, "CLUSTER="+strings.Join(members, ","), "ADVERTISE="+n.Addr, "PEER_BIND="+n.peer,
		"PEER_TOKEN_FILE="+filepath.Join(f.Dir, "peer.token"), "FORM="+form,
		"ELECTION_MS="+strconv.FormatInt(f.Election.Milliseconds(), 10))
}

// Start starts every node and forms the cluster. When it returns without an error, all are ready.
func (f *Fleet) Start(within time.Duration) error {
	for _, n := range f.Nodes {
		if err := n.Start(); err != nil {
			return err
		}
	}
	if len(f.Nodes) > 1 && f.CLI != "" {
		if err := f.init(0); err != nil {
			return err
		}
	}
	f.formed = true
	return f.Ready(within)
}

// Reform starts a new fencing domain where the memory of the old one is lost: every node is killed and started, and the
// cluster formed anew above a token.
func (f *Fleet) Reform(firstToken uint64, within time.Duration) error {
	f.Kill()
	f.formed = false
	for _, n := range f.Nodes {
		if err := n.Start(); err != nil {
			return err
		}
	}
	if err := f.init(firstToken); err != nil {
		return err
	}
	f.formed = true
	return f.Ready(within)
}

// init tells a member to form the cluster, again and again while members are starting.
func (f *Fleet) init(firstToken uint64) error {
	if f.CLI == "" {
		return nil // FORM=auto
	}
	args := []string{"init", "--peer", f.Nodes[0].peer}
	if firstToken > 0 {
		args = append(args, "--first-token", strconv.FormatUint(firstToken, 10), "--grace", "0")
	}
	var out []byte
	var err error
	for end := time.Now().Add(formTimeout); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), formTimeout)
		line := append(f.prefix(0), append([]string{f.CLI}, args...)...)
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "PEER_TOKEN_FILE=" + filepath.Join(f.Dir, "peer.token")}
		out, err = cmd.CombinedOutput()
		cancel()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("fleet: %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
}

func (f *Fleet) prefix(slot int) []string {
	if f.Prefix == nil {
		return nil
	}
	return f.Prefix(slot)
}

// Ready waits until every node that runs says that it is ready.
func (f *Fleet) Ready(within time.Duration) error {
	var why error
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		why = nil
		for _, n := range f.Nodes {
			if n.Running() {
				why = errors.Join(why, n.Ready())
			}
		}
		if why == nil {
			return nil
		}
	}
	return fmt.Errorf("%w (%v): %w", ErrNotReady, within, why)
}

// Kill kills every node that runs and waits for its end.
func (f *Fleet) Kill() {
	for _, n := range f.Nodes {
		n.Kill()
	}
}

// Number names the present process of the node: another one after every start.
func (n *Node) Number() int32 { return int32(n.Slot)*1_000_000 + n.starts.Load() }

// Starts is how often the node was started.
func (n *Node) Starts() int { return int(n.starts.Load()) }

// Start starts the node's process. A node of a formed cluster never forms one again.
func (n *Node) Start() error {
	if n.Running() {
		return ErrRunning
	}
	form := "explicit"
	if n.fleet.CLI == "" && !n.fleet.formed {
		form = "auto"
	}
	if n.log == nil {
		var err error
		if n.log, err = os.Create(filepath.Join(n.fleet.Dir, fmt.Sprintf("slot-%d.log", n.Slot))); err != nil {
			return err
		}
	}
	line := append(n.fleet.prefix(n.Slot), n.fleet.Bin)
	n.cmd = exec.Command(line[0], line[1:]...)
	n.cmd.Env = n.fleet.env(n, form)
	n.cmd.Stdout, n.cmd.Stderr = n.log, n.log
	n.cmd.SysProcAttr = DieWithUs()
	n.starts.Add(1)
	fmt.Fprintf(n.log, "--- start %d of slot %d\n", n.starts.Load(), n.Slot)
	if err := n.cmd.Start(); err != nil {
		n.cmd = nil
		return err
	}
	n.exited = make(chan struct{})
	// Ends with the process.
	go func(cmd *exec.Cmd, exited chan struct{}) { cmd.Wait(); close(exited) }(n.cmd, n.exited)
	return nil
}

// Running says whether the process that was last started has not ended yet.
func (n *Node) Running() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the process.
func (n *Node) Signal(s syscall.Signal) error {
	if !n.Running() {
		return os.ErrProcessDone
	}
	return n.cmd.Process.Signal(s)
}

// Kill kills the process, if it runs, and waits for its end.
func (n *Node) Kill() {
	if n.Running() {
		n.cmd.Process.Kill()
		<-n.exited
	}
}

// Stop asks the process to end and waits for it. The error says that it did not end in time, or how it ended.
func (n *Node) Stop() error {
	if err := n.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-n.exited:
	case <-time.After(exitTimeout):
		n.Kill()
		return fmt.Errorf("fleet: slot %d: %w %v after SIGTERM", n.Slot, ErrRunning, exitTimeout)
	}
	if code := n.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("fleet: slot %d: exit code %d after SIGTERM", n.Slot, code)
	}
	return nil
}

// Ready is nil when the node says that it is ready.
func (n *Node) Ready() error {
	body, status, err := n.get("/readyz")
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("slot %d: %d %s", n.Slot, status, strings.TrimSpace(string(body)))
	}
	return nil
}

// probing opens a connection for each request, so that none outlives its process.
var probing = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}

func (n *Node) get(path string) (body []byte, status int, err error) {
	resp, err := probing.Get("http://" + n.admin + path)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return body, resp.StatusCode, err
}

// Log is the end of what the node has written, for a report.
func (n *Node) Log(bytesAtMost int) string {
	text, err := os.ReadFile(filepath.Join(n.fleet.Dir, fmt.Sprintf("slot-%d.log", n.Slot)))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-bytesAtMost):])
}
