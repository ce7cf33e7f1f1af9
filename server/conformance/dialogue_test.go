package conformance

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A dialogue is a list of lines, one a step, between clients with names of their own and one server. `#` starts a
// comment. Keys are written short and get an ending that no other dialogue has; $x is a token, bound where it is first
// seen. The same line means the same on every wire: what a wire does not say is left out there.
//
//	a = 0.3                    a speaks that wire (else: the dialogue's)
//	a > A id wait lease key    acquire        a > R id $x key        release
//	a > S id wait lease k l    acquire a set  a > G id $x k l        release a set
//	a > LF                     keep-alive     a > "bytes"            bytes, as Go writes them
//	a > fin                    shuts its half a > cut                closes      a > rst    resets
//	a < A id $x key            granted (S on wire 3)
//	a < T id key               timed out      a < B id key           busy; T on wire 0.1
//	a < R id $x key            released (G)   a < N id $x key        not held
//	a < E reason               error          a < E id code          error on wire 3
//	a < "bytes"                               a < end                the end of the stream
//	a < { A 1 $x k ; T 2 k }   these, in any order: the client matches replies
//	a < quiet 0.2              nothing for so many seconds
//	a sync                     all that a sent has been taken, and nothing has come that was not expected
//	clock                      starts the clock
//	a < T 1 k in 0.9 0.95      came then: the upper bound is widened by the machine's slack, the lower is not
type dialogue struct {
	t       testing.TB
	in      *instance
	wire    string
	clients map[string]*client
	tokens  map[string]uint64
	ending  string
	clock   time.Time
}

var endings atomic.Int64

// play runs a script on a wire of a server.
func play(t testing.TB, in *instance, wire, script string) {
	t.Helper()
	d := &dialogue{
		t: t, in: in, wire: wire, clients: map[string]*client{}, tokens: map[string]uint64{},
		ending: fmt.Sprintf(".%d", endings.Add(1)),
	}
	var lines []string
	for line := range strings.Lines(script) {
		line, _, _ = strings.Cut(line, "#")
		lines = append(lines, strings.TrimSpace(line))
	}
	d.connect(lines)
	for i, line := range lines {
		if line == "" {
			continue
		}
		if err := d.step(line); err != nil {
			t.Fatalf("wire %s, line %d: %s: %v", wire, i+1, line, err)
		}
	}
}

// connect connects all clients before the first step, so that no handshake falls into a time that is measured.
func (d *dialogue) connect(lines []string) {
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] == "clock" || d.clients[f[0]] != nil {
			continue
		}
		wire := d.wire
		if f[1] == "=" {
			wire = f[2]
		}
		d.clients[f[0]] = d.in.dial(d.t, wire)
	}
}

func (d *dialogue) step(line string) error {
	f := strings.Fields(line)
	if f[0] == "clock" {
		d.clock = time.Now()
		return nil
	}
	if len(f) < 2 {
		return fmt.Errorf("a step without a verb")
	}
	c := d.clients[f[0]]
	rest := strings.TrimSpace(line[strings.Index(line, f[1])+len(f[1]):])
	switch f[1] {
	case "=":
		return nil // connected already
	case ">":
		return d.say(c, rest)
	case "<":
		return d.hear(c, rest)
	case "sync":
		return d.sync(c)
	}
	return fmt.Errorf("no such verb")
}

// sync takes a key of its own and gives it back.
func (d *dialogue) sync(c *client) error {
	key := fmt.Sprintf("sync%s.%d", d.ending, endings.Add(1))
	token := c.grant(1<<40, 1, 5, key)
	c.release(1<<40, token, key)
	return nil
}

func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		panic(err) // a script that cannot be read
	}
	return n
}

func (d *dialogue) token(name string) (uint64, error) {
	if !strings.HasPrefix(name, "$") {
		return number(name), nil
	}
	n, ok := d.tokens[name]
	if !ok {
		return 0, fmt.Errorf("%s is not bound", name)
	}
	return n, nil
}

func (d *dialogue) say(c *client, text string) error {
	if strings.HasPrefix(text, `"`) {
		b, err := strconv.Unquote(text)
		if err != nil {
			return err
		}
		c.send([]byte(b))
		return nil
	}
	f := strings.Fields(text)
	switch f[0] {
	case "LF":
		c.send([]byte{'\n'})
	case "fin":
		return c.conn.(interface{ CloseWrite() error }).CloseWrite()
	case "cut":
		return c.conn.Close()
	case "rst":
		conn := c.conn
		if t, ok := conn.(*tls.Conn); ok {
			conn = t.NetConn()
		}
		if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
			return err
		}
		return conn.Close()
	case "A":
		c.send(c.wire.AppendAcquire(nil, number(f[1]), uint16(number(f[2])), uint16(number(f[3])), []byte(f[4]+d.ending)))
	case "S":
		b := append(u64(number(f[1])), byte(number(f[2])), byte(number(f[3])))
		c.send(frame3('S', b, d.set(f[4:])))
	case "R", "G":
		token, err := d.token(f[2])
		if err != nil {
			return err
		}
		if f[0] == "R" {
			c.send(c.wire.AppendRelease(nil, number(f[1]), token, []byte(f[3]+d.ending)))
			return nil
		}
		c.send(frame3('G', u64(number(f[1])), u64(token), d.set(f[3:])))
	default:
		return fmt.Errorf("no such request")
	}
	return nil
}

// set is a set of keys as wire 3 writes it.
func (d *dialogue) set(keys []string) []byte {
	b := []byte{byte(len(keys))}
	for _, k := range keys {
		k += d.ending
		b = append(append(b, byte(len(k))), k...)
	}
	return b
}

func (d *dialogue) hear(c *client, text string) error {
	var from, to time.Duration
	if before, bounds, timed := strings.Cut(text, " in "); timed {
		var err error
		if from, to, err = seconds2(bounds); err != nil {
			return err
		}
		text = before
	}
	f := strings.Fields(text)
	var e event
	switch {
	case f[0] == "end":
		e = c.wantEnd()
	case f[0] == "quiet":
		s, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return err
		}
		c.quiet(time.Duration(s * float64(time.Second)))
		return nil
	case strings.HasPrefix(text, `"`):
		b, err := strconv.Unquote(text)
		if err != nil {
			return err
		}
		e = c.want([]byte(b))
	default:
		var err error
		if e, err = d.match(c, strings.Split(strings.Trim(text, "{} "), ";")); err != nil {
			return err
		}
	}
	if to == 0 {
		return nil
	}
	took := e.at.Sub(d.clock)
	if allowed := to + slack(d.clock); took < from || took > allowed {
		return fmt.Errorf("came after %v, want %v to %v (with slack %v)", took, from, to, allowed)
	}
	return nil
}

// match reads as many frames as are wanted, in any order, and returns the last.
func (d *dialogue) match(c *client, wanted []string) (e event, err error) {
	for len(wanted) > 0 {
		if e = c.next(); e.err != nil {
			return e, fmt.Errorf("got %q (%w)", e.raw, e.err)
		}
		found := -1
		var want []byte
		for i, w := range wanted {
			f := strings.Fields(w)
			if want, err = d.frame(c, f, e); err == nil && string(want) == string(e.raw) {
				if f[0] == "A" || f[0] == "S" {
					d.tokens[f[2]] = e.token
				}
				found = i
				break
			}
		}
		if found < 0 {
			return e, fmt.Errorf("got %q, want %q %v", e.raw, want, err)
		}
		wanted = append(wanted[:found:found], wanted[found+1:]...)
	}
	return e, nil
}

func seconds2(s string) (from, to time.Duration, err error) {
	var a, b float64
	if _, err = fmt.Sscan(s, &a, &b); err != nil {
		return 0, 0, err
	}
	return time.Duration(a * float64(time.Second)), time.Duration(b * float64(time.Second)), nil
}

// frame builds what is expected; e is what came, whose token is taken where none is bound.
func (d *dialogue) frame(c *client, f []string, e event) ([]byte, error) {
	op := f[0][0]
	switch op {
	case 'A', 'S':
		known, ok := d.tokens[f[2]]
		if !ok {
			if e.token == 0 {
				return nil, fmt.Errorf("got %q, want a grant", e.raw)
			}
			known = e.token
		}
		return granted(c.name, op, number(f[1]), known, keyOf(f, 3)+d.ending), nil
	case 'T', 'B':
		return refused(c.name, op, number(f[1]), keyOf(f, 2)+d.ending), nil
	case 'R', 'N', 'G':
		token, err := d.token(f[2])
		if err != nil {
			return nil, err
		}
		return released(c.name, op, number(f[1]), token, keyOf(f, 3)+d.ending), nil
	case 'E':
		if c.name == "3" {
			return failed(c.name, number(f[1]), f[2]), nil
		}
		return failed(c.name, 0, f[1]), nil
	case 'I':
		return frame3('I', u64(number(f[1]))), nil
	}
	return nil, fmt.Errorf("no such reply")
}

// keyOf is the key of a reply, which wire 3 does not say: the script may leave it out there.
func keyOf(f []string, i int) string {
	if i < len(f) {
		return f[i]
	}
	return ""
}

// scene is a script with its name.
type scene struct{ name, script string }

// each plays scenes on wires, plain and over TLS, all at once.
func each(t *testing.T, on []string, scenes []scene) {
	for _, tls := range []bool{false, true} {
		in := common(t, tls)
		for _, w := range on {
			for _, s := range scenes {
				name := fmt.Sprintf("%s/%s/tls=%v", s.name, w, tls)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					play(t, in, w, s.script)
				})
			}
		}
	}
}

func be16(n int) string { return string(binary.BigEndian.AppendUint16(nil, uint16(n))) }
