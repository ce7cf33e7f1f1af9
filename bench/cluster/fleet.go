package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// fleet is the nodes; the main goroutine's.
type fleet struct {
	o           options
	dir         string
	nodes       []node
	token       string // of clients; empty: open
	fresh       bool   // to be formed
	fingerprint string
	ended       chan ended
}

type node struct {
	clients map[string]string // wire: address
	peer    string
	admin   string
	log     string
	pid     int // 0: dead
	proc    *exec.Cmd
	gone    chan struct{} // closed when proc has ended
}

// wires are the names of the harness, the setting of each listener, and its list of addresses in the environment.
var wires = []struct{ name, setting, advertise, given string }{
	{"v1", "BIND", "ADVERTISE", ""},
	{"v3", "LISTEN_V3", "", "INTEROP_V3"},
	{"0.3", "LISTEN_0_3", "ADVERTISE_0_3", "INTEROP_0_3"},
	{"0.1", "LISTEN_0_1", "ADVERTISE_0_1", "INTEROP_0_1"},
}

func newFleet(o options, dir string) (*fleet, error) {
	f := &fleet{o: o, dir: dir, nodes: make([]node, o.nodes), fresh: true}
	// A place for each end that may come while the fleet forms or stops.
	f.ended = make(chan ended, 4*o.nodes)
	if o.interop {
		f.token = os.Getenv("INTEROP_TOKEN")
	}
	if err := os.WriteFile(filepath.Join(dir, "peer.token"), []byte(rand.Text()+"\n"), 0o600); err != nil {
		return nil, err
	}
	if o.data != "" {
		_, err := os.Stat(filepath.Join(o.data, "slot-0", "identity.json"))
		f.fresh = errors.Is(err, os.ErrNotExist)
	}
	ports, err := f.ports()
	if err != nil {
		return nil, err
	}
	for slot := range f.nodes {
		n := &f.nodes[slot]
		n.clients = map[string]string{"v1": ports[slot].client}
		n.peer, n.admin = ports[slot].peer, ports[slot].admin
		n.log = filepath.Join(dir, fmt.Sprintf("slot-%d.log", slot))
		if o.data != "" {
			n.log = filepath.Join(o.data, fmt.Sprintf("slot-%d.log", slot))
		}
	}
	if o.interop {
		return f, f.interopAddresses()
	}
	return f, nil
}

type threePorts struct {
	Client, Peer, Admin int
	client, peer, admin string
}

// ports finds free ports, or takes those that a data directory's members have: they are part of who they are.
func (f *fleet) ports() ([]threePorts, error) {
	file := filepath.Join(f.o.data, "ports.json")
	var p []threePorts
	b, err := os.ReadFile(file)
	if f.o.data != "" && err == nil {
		if err := json.Unmarshal(b, &p); err != nil || len(p) != f.o.nodes {
			return nil, fmt.Errorf("%s: for another number of nodes, or unreadable", file)
		}
	} else if p, err = freePorts(f.o.nodes); err != nil {
		return nil, err
	}
	if f.o.data != "" {
		if err := os.MkdirAll(f.o.data, 0o700); err != nil {
			return nil, err
		}
		b, _ := json.Marshal(p)
		if err := os.WriteFile(file, b, 0o600); err != nil {
			return nil, err
		}
	}
	for i := range p {
		p[i].client, p[i].peer, p[i].admin = local(p[i].Client), local(p[i].Peer), local(p[i].Admin)
	}
	return p, nil
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// peerOffset is the default of PEER_PORT_OFFSET.
const peerOffset = 1000

// freePorts finds, for each node, a client port whose peer port is free as well, and an admin port. They are below the
// range from which the kernel gives ports to connections, so that a node can come back to its own.
func freePorts(n int) (out []threePorts, err error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	try := func(port int) bool {
		l, err := net.Listen("tcp", local(port))
		if err == nil {
			held = append(held, l)
		}
		return err == nil
	}
	for port := 21000 + os.Getpid()%4000; len(out) < n && port < 30000; port++ {
		if try(port) && try(port+peerOffset) && try(port+2*peerOffset) {
			out = append(out, threePorts{Client: port, Peer: port + peerOffset, Admin: port + 2*peerOffset})
		}
	}
	if len(out) < n {
		return nil, errors.New("no free ports between 21000 and 32000")
	}
	return out, nil
}

// interopAddresses takes the wires' addresses that the harness gives, and chooses the others.
func (f *fleet) interopAddresses() error {
	for _, w := range wires[1:] {
		var given []string
		if list := os.Getenv(w.given); list != "" {
			given = strings.Split(list, ",")
		} else {
			p, err := freePorts(len(f.nodes) + len(f.nodes)*len(f.nodes[0].clients))
			if err != nil {
				return err
			}
			for _, t := range p[len(f.nodes)*len(f.nodes[0].clients):] {
				given = append(given, local(t.Client))
			}
		}
		if len(given) != len(f.nodes) {
			return fmt.Errorf("%s: want %d addresses", w.given, len(f.nodes))
		}
		for slot := range f.nodes {
			f.nodes[slot].clients[w.name] = given[slot]
		}
	}
	return nil
}

// environ is the settings of a slot.
func (f *fleet) environ(slot int) []string {
	n := &f.nodes[slot]
	var members []string
	for i := range f.nodes {
		members = append(members, f.nodes[i].clients["v1"])
	}
	env := append(os.Environ(), "CLUSTER="+strings.Join(members, ","), "PEER_BIND="+n.peer, "ADMIN_BIND="+n.admin,
		"PEER_TOKEN_FILE="+filepath.Join(f.dir, "peer.token"), "NODE_NAME=slot-"+strconv.Itoa(slot))
	for _, w := range wires {
		if address := n.clients[w.name]; address != "" {
			env = append(env, w.setting+"="+address)
			if w.advertise != "" {
				env = append(env, w.advertise+"="+address)
			}
		}
	}
	if f.o.interop {
		env = append(env, "CLIENT_TOKENS="+f.token)
	}
	if f.o.data != "" {
		env = append(env, "DATA_DIR="+filepath.Join(f.o.data, fmt.Sprintf("slot-%d", slot)))
	}
	return env
}

func (f *fleet) start(slot int) error {
	n := &f.nodes[slot]
	out, err := os.OpenFile(n.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(f.o.server)
	cmd.Env, cmd.Stdout, cmd.Stderr = f.environ(slot), out, out
	cmd.SysProcAttr = ownGroup() // Ctrl-C is for this program, which stops them in order
	if err := cmd.Start(); err != nil {
		return err
	}
	gone := make(chan struct{})
	n.proc, n.pid, n.gone = cmd, cmd.Process.Pid, gone
	go func() { // until the process ends
		cmd.Wait()
		close(gone)
		select {
		case f.ended <- ended{slot, cmd.Process.Pid, cmd.ProcessState.String()}:
		default: // nobody looks any more
		}
	}()
	return nil
}

// init forms the cluster, again while members are starting.
func (f *fleet) init(ctx context.Context) error {
	for {
		cmd := exec.CommandContext(ctx, f.o.cli, "init", "--peer", f.nodes[0].peer)
		cmd.Env = append(os.Environ(), "PEER_TOKEN_FILE="+filepath.Join(f.dir, "peer.token"))
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
		case e := <-f.ended:
			tail, _ := os.ReadFile(f.nodes[e.slot].log)
			return fmt.Errorf("slot %d: %s: %s", e.slot, e.state, bytes.TrimSpace(tail))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

type nodeStatus struct {
	Ready       bool   `json:"ready"`
	Reason      string `json:"reason"`
	Fingerprint string `json:"identity_fingerprint"`
}

func (f *fleet) status(ctx context.Context, slot int) (s nodeStatus, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.nodes[slot].admin+"/status", nil)
	if err != nil {
		return s, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

// stop ends all nodes, in order if they will.
func (f *fleet) stop() {
	for i := range f.nodes {
		if n := &f.nodes[i]; n.pid != 0 {
			n.proc.Process.Signal(os.Interrupt)
		}
	}
	deadline := time.After(stopTimeout)
	for i := range f.nodes {
		n := &f.nodes[i]
		if n.proc == nil {
			continue
		}
		select {
		case <-n.gone:
		case <-deadline:
			n.proc.Process.Kill()
			<-n.gone
			deadline = time.After(0)
		}
	}
}
