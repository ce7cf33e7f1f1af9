// Package netlab makes a network of its own out of network namespaces, in which links can be cut in one direction or in
// both, and can lose and delay packets. It decides how packets travel; it refuses to know who sends them. It needs
// Linux, root, iproute2 and nftables. No packet reaches the host's own network, and Close takes away what New has made,
// and nothing else. A Lab belongs to one goroutine.
package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// ErrUnable says that this machine cannot make such a network; the reason stands behind it.
var ErrUnable = errors.New("netlab: not possible here")

// Link says what happens to the packets of every link.
type Link struct {
	Delay, Jitter time.Duration // a packet takes Delay ± Jitter, evenly spread, so packets overtake each other
	Loss          float64       // share of packets that are lost
}

// Lab is the network: a namespace for each node and one for the clients.
type Lab struct {
	name  string
	nodes int
	relay *relay
	made  []string // namespaces
}

// client is the namespace of the clients, beside those of the nodes.
const client = "c"

// New makes a network for some nodes. Without a link property, links are a bridge and pairs of veth; with one, a relay
// in this process carries the packets, for as long as it lives.
func New(nodes int, link Link) (*Lab, error) {
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnable, err)
		}
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: not root", ErrUnable)
	}
	l := Attach(fmt.Sprintf("tk%d", os.Getpid()), nodes)
	if err := l.make(link); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Attach is the network of another process, by its name. Its Close does nothing.
func Attach(name string, nodes int) *Lab { return &Lab{name: name, nodes: nodes} }

// Name is what Attach takes.
func (l *Lab) Name() string { return l.name }

// Host is the address of a node.
func (l *Lab) Host(node int) string { return fmt.Sprintf("198.18.77.%d", node+1) }

// clientHost is the address of the clients.
const clientHost = "198.18.77.100"

// Prefix starts a command in the namespace of a node.
func (l *Lab) Prefix(node int) []string { return l.in(fmt.Sprintf("n%d", node)) }

// ClientPrefix starts a command in the namespace of the clients.
func (l *Lab) ClientPrefix() []string { return l.in(client) }

func (l *Lab) in(space string) []string { return []string{"ip", "netns", "exec", l.space(space)} }

func (l *Lab) space(s string) string { return l.name + "-" + s }

func (l *Lab) make(link Link) error {
	hosts := map[string]string{client: clientHost}
	for i := range l.nodes {
		hosts[fmt.Sprintf("n%d", i)] = l.Host(i)
	}
	spaces := []string{"hub"}
	for s := range hosts { // order does not matter: all are made alike
		spaces = append(spaces, s)
	}
	for _, s := range spaces {
		if err := command("", "ip", "netns", "add", l.space(s)); err != nil {
			return fmt.Errorf("%w: %w", ErrUnable, err)
		}
		l.made = append(l.made, l.space(s))
		if err := command("", "ip", "-n", l.space(s), "link", "set", "lo", "up"); err != nil {
			return err
		}
	}
	if link == (Link{}) {
		if err := l.bridge(hosts); err != nil {
			return err
		}
	} else {
		var err error
		if l.relay, err = startRelay(l, hosts, link); err != nil {
			return err
		}
	}
	for i := range l.nodes {
		if err := command(filter, append(l.Prefix(i), "nft", "-f", "-")...); err != nil {
			return fmt.Errorf("%w: %w", ErrUnable, err)
		}
	}
	return nil
}

// filter drops what comes from the addresses in the set.
const filter = `table inet part {
	set cut { type ipv4_addr; }
	chain in { type filter hook input priority -10; policy accept; ip saddr @cut counter drop; }
}
`

// bridge joins all namespaces by a bridge in the hub.
func (l *Lab) bridge(hosts map[string]string) error {
	hub := l.space("hub")
	if err := l.ip(hub, "link add br0 type bridge", "link set br0 up"); err != nil {
		return err
	}
	for s, host := range hosts { // order does not matter: all are joined alike
		err := errors.Join(
			l.ip(hub, "link add "+s+" type veth peer name eth0 netns "+l.space(s), "link set "+s+" master br0 up"),
			l.ip(l.space(s), "addr add "+host+"/24 dev eth0", "link set eth0 up"))
		if err != nil {
			return err
		}
	}
	return nil
}

// ip runs ip(8) lines in a namespace.
func (l *Lab) ip(space string, lines ...string) error {
	for _, line := range lines {
		if err := command("", append([]string{"ip", "-n", space}, strings.Fields(line)...)...); err != nil {
			return err
		}
	}
	return nil
}

// Cut drops the packets that travel from one node to another, for each pair given, and lets all others through.
func (l *Lab) Cut(pairs [][2]int) error {
	scripts := make([]strings.Builder, l.nodes)
	for i := range scripts {
		scripts[i].WriteString("flush set inet part cut\n")
	}
	for _, p := range pairs {
		fmt.Fprintf(&scripts[p[1]], "add element inet part cut { %s }\n", l.Host(p[0]))
	}
	errs := make([]error, l.nodes)
	var cutting sync.WaitGroup
	for i := range scripts {
		cutting.Add(1)
		// Ends with its command.
		go func() {
			defer cutting.Done()
			errs[i] = command(scripts[i].String(), append(l.Prefix(i), "nft", "-f", "-")...)
		}()
	}
	cutting.Wait()
	return errors.Join(errs...)
}

// Heal lets all packets through.
func (l *Lab) Heal() error { return l.Cut(nil) }

// Close takes the network away. Processes in it must have ended.
func (l *Lab) Close() error {
	if l.relay != nil {
		l.relay.close()
	}
	var errs []error
	for _, s := range l.made {
		errs = append(errs, command("", "ip", "netns", "del", s))
	}
	l.made = nil
	return errors.Join(errs...)
}

// command runs a command with some standard input.
func command(input string, line ...string) error {
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("netlab: %s: %w: %s", strings.Join(line, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
