package eventloop

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ticketing-go/ticketing/codec"
)

var (
	resets   = flag.Int("resets", 3000, "connections that TestResets resets")
	drippers = flag.Int("drippers", 2000, "clients of TestDrippers")
)

// from dials from a loopback address of its own.
func from(addr string, i int) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%250))}, Timeout: 5 * time.Second}
	return d.Dial("tcp", addr)
}

// Twice the cap from many addresses: those within it are served, the others are closed without a byte, and when all is over
// newcomers are served again.
func TestConnectionCap(t *testing.T) {
	const limit = 200
	r := start(t, func(c *Config, _ *fakeHost) { c.MaxConnections = limit })
	if c, err := from(r.addr, 0); err != nil {
		t.Skipf("only one loopback address: %v", err)
	} else {
		c.Close()
	}
	until(t, "the probe to go", time.Second, func() bool { return r.e.Stats().Connections == 0 })
	var in []*client
	for i := range limit {
		c, err := from(r.addr, i)
		if err != nil {
			t.Fatal(err)
		}
		cl := wrap(t, c)
		cl.send(append(cl.digest(""), acquire(uint64(i), "k")...))
		cl.granted(uint64(i), "k")
		in = append(in, cl)
	}
	for i := range limit {
		c, err := from(r.addr, i)
		if err != nil {
			t.Fatal(err)
		}
		cl := wrap(t, c)
		if b, err := cl.in.ReadByte(); err == nil {
			t.Fatalf("connection %d beyond the cap got byte %d", i, b)
		}
		cl.Close()
	}
	for i, cl := range in {
		cl.send(acquire(uint64(i), "again"))
		cl.granted(uint64(i), "again")
		cl.Close()
	}
	if st := r.e.Stats(); st.OverCap != limit || st.Evicted != 0 {
		t.Errorf("over the cap %d, evicted %d, want %d and 0", st.OverCap, st.Evicted, limit)
	}
	until(t, "room", 5*time.Second, func() bool { return r.e.Stats().Connections == 0 })
	c := r.dial()
	c.send(acquire(1, "k"))
	c.granted(1, "k")
}

// When all places are taken, the oldest unauthenticated connection gives its own up if it has had it for over a second.
func TestEviction(t *testing.T) {
	over(t, func(t *testing.T, start func(func(*Config, *fakeHost)) *rig) {
		r := start(func(c *Config, _ *fakeHost) { c.MaxConnections = 10 })
		dial := func() net.Conn {
			c, err := net.Dial("tcp", r.addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			return c
		}
		var served []*client
		for range 5 {
			c := r.dial()
			c.send(acquire(1, "k"))
			c.granted(1, "k")
			served = append(served, c)
		}
		var idle []net.Conn
		for range 5 {
			idle = append(idle, dial())
		}
		until(t, "five to wait", 5*time.Second, func() bool { return r.e.Stats().Unauthenticated == 5 })
		// The age of those that wait, without waiting: first all came just now, then all over a second ago.
		age := func(by time.Duration) {
			b := &r.e.lobby
			b.mu.Lock()
			defer b.mu.Unlock()
			for s := b.first; s != nil; s = s.behind {
				s.opened = r.e.now() - by
			}
		}
		age(-5 * time.Second)
		if n, err := io.Copy(io.Discard, dial()); n != 0 {
			t.Errorf("a newcomer within the second got %d bytes (%v)", n, err)
		}
		if st := r.e.Stats(); st.Evicted != 0 {
			t.Errorf("evicted %d within the second", st.Evicted)
		}
		age(evictableAfter + tickPeriod)
		late := r.dial()
		late.send(acquire(2, "k"))
		late.granted(2, "k")
		want := 0
		if r.tls == nil {
			want = len("sha256 12345678\n") // its challenge, and not a byte more
		}
		if got, _ := io.ReadAll(idle[0]); len(got) != want {
			t.Errorf("the evicted one got %q", got)
		}
		if st := r.e.Stats(); st.Evicted != 1 || st.Connections != 10 {
			t.Errorf("evicted %d, connections %d, want 1 and 10", st.Evicted, st.Connections)
		}
		for _, c := range served {
			c.send(acquire(3, "k"))
			c.granted(3, "k")
		}
	})
}

// Clients that drip a byte a second are each gone at most 5.5 s after the first byte of a frame.
func TestDrippers(t *testing.T) {
	t.Parallel()
	n := *drippers
	r := start(t, func(c *Config, _ *fakeHost) { c.MaxConnections = n })
	frame := acquire(1, "a key that is long enough for it")
	type dripper struct {
		*client
		first time.Time
	}
	ds := make([]*dripper, n)
	for i := range ds {
		ds[i] = &dripper{client: r.dial()}
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var wg sync.WaitGroup
	for at := range 7 {
		for _, d := range ds {
			if at == 0 {
				d.first = time.Now()
			}
			_, _ = d.Write(frame[at : at+1])
			if at == 0 {
				wg.Add(1)
				go func() { // ends with the connection
					defer wg.Done()
					got, err := d.frame()
					if took := time.Since(d.first); got != "Ebad_request" || took > frameTimeout+500*time.Millisecond {
						t.Errorf("got %q (%v) after %v", got, err, took)
					}
					if _, err := d.frame(); err != io.EOF {
						t.Errorf("after the error: %v, want the end", err)
					}
				}()
			}
		}
		<-tick.C
	}
	wg.Wait()
	if st := r.e.Stats(); st.FrameFaults["bad_request"] != uint64(n) {
		t.Errorf("%d faults of %d", st.FrameFaults["bad_request"], n)
	}
}

// Connections that are reset at any moment leave nothing behind.
func TestResets(t *testing.T) {
	r := start(t, func(_ *Config, h *fakeHost) { h.quiet = true })
	honest := r.dial()
	goroutines := runtime.NumGoroutine()
	for i := range *resets {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		if i%3 > 0 {
			cl := &client{c, t, bufio.NewReader(c)}
			cl.send(cl.digest(""))
			if i%3 > 1 {
				cl.send(append(acquire(1, "k"), acquire(2, "k")...))
			}
		}
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
		if i%100 == 0 {
			_ = honest.SetDeadline(time.Now().Add(10 * time.Second))
			honest.send(acquire(uint64(i), "honest"))
			honest.granted(uint64(i), "honest")
		}
	}
	until(t, "all to be gone", 10*time.Second, func() bool { return r.e.Stats().Connections == 1 })
	until(t, "the goroutines to go", 10*time.Second, func() bool { return runtime.NumGoroutine() <= goroutines })
	r.h.mu.Lock()
	live := len(r.h.live)
	r.h.mu.Unlock()
	if live != 1 {
		t.Errorf("the host still has %d sessions, want 1", live)
	}
}

// A process with 64 descriptors lives through a flood, serves those it has all the time, and is as before when it is over.
func TestDescriptorsRunOut(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	addr := freePort(t, "127.0.0.1")
	cmd.Env = append(os.Environ(), childVariable+"=descriptors", "EVENTLOOP_TEST_ADDR="+addr)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	lines := bufio.NewScanner(out)
	ask := func() string {
		t.Helper()
		fmt.Fprintln(in, "files")
		if !lines.Scan() {
			t.Fatal("the child has ended")
		}
		return lines.Text()
	}
	before := ask()
	for same := 0; same < 20; same++ { // the probes of the start may still be closing
		if now := ask(); now != before {
			before, same = now, 0
		}
		<-time.After(5 * time.Millisecond)
	}
	r := &rig{t: t, addr: addr}
	var honest []*client
	for range 8 {
		honest = append(honest, r.dial())
	}
	serve := func() {
		t.Helper()
		for i, c := range honest {
			c.send(acquire(uint64(i), "honest"))
			c.granted(uint64(i), "honest")
		}
	}
	serve()
	for range 5 {
		floodOnce(t, addr, cmd.Process, serve)
		serve()
	}
	for _, c := range honest {
		c.Close()
	}
	after := ""
	defer func() { t.Logf("descriptors, goroutines, connections: before %s, after %s", before, after) }()
	until(t, "all to be as before", 15*time.Second, func() bool { after = ask(); return after == before })
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the child: %v", err)
	}
}

// floodOnce opens more connections than there are descriptors, at once and one by one, and closes them.
func floodOnce(t *testing.T, addr string, p *os.Process, serve func()) {
	t.Helper()
	// A burst that the child finds all at once.
	_ = p.Signal(unix.SIGSTOP)
	flood := burst(t, addr, 300)
	_ = p.Signal(unix.SIGCONT)
	serve()
	var flow []net.Conn
	for i := range 100 { // and a flow, into the full house
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		flow = append(flow, c)
		if i%10 == 0 {
			serve()
		}
	}
	for i, fd := range flood {
		unix.Close(fd)
		flow[i%len(flow)].Close()
	}
}

// burst starts n connections without waiting for any.
func burst(t *testing.T, addr string, n int) []int {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	var fds []int
	for range n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err == nil {
			err = unix.SetNonblock(fd, true)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Connect(fd, &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte{127, 0, 0, 1}})
		fds = append(fds, fd)
	}
	return fds
}

func init() { children["descriptors"] = descriptorsChild }

// descriptorsChild serves with few descriptors and says how many it has when asked.
func descriptorsChild() {
	lim := unix.Rlimit{Cur: 64, Max: 64}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	h := &fakeHost{quiet: true}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	h.mu.Lock()
	e, err := Start(Config{
		Listeners: []Listener{{os.Getenv("EVENTLOOP_TEST_ADDR"), codec.V1}}, Loops: 2, MaxConnections: 1024, Host: h, Log: log,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	h.e = e
	h.mu.Unlock()
	go func() { // ends with the process
		<-e.Done()
		fmt.Fprintln(os.Stderr, "the engine ended:", e.Err())
		os.Exit(4)
	}()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		// gnet's pool of workers, used at the start, goes by itself after a while.
		buf := make([]byte, 1<<20)
		n := 0
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if !strings.Contains(g, "panjf2000/ants") {
				n++
			}
		}
		fmt.Println(openFiles(), n, e.Stats().Connections)
	}
}
