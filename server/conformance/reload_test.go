package conformance

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// SIGHUP reads tokens again: connections of a token that is gone are closed, on every wire, the others stay; a bad file
// changes nothing.
func TestTokensAreReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	replace(t, file, []byte(goodToken+"\n"+otherToken+"\n"))
	d := spawn(t, "CLIENT_TOKENS_FILE="+file)
	stay, leave := map[string]*client{}, map[string]*client{}
	for _, w := range wires {
		for token, m := range map[string]map[string]*client{goodToken: stay, otherToken: leave} {
			c, err := d.login(t, w, token)
			if err != nil {
				t.Fatal(err)
			}
			c.listen()
			c.grant(1, 1, 60, token[:3]+w)
			m[w] = c
		}
	}
	const third = "a-third-token-abcdefghijklmnop"
	replace(t, file, []byte(goodToken+"\n"+third+"\n"))
	d.signal(t, syscall.SIGHUP)
	for _, w := range wires {
		leave[w].wantEnd()
		stay[w].grant(2, 1, 60, "again"+w)
		for token, ok := range map[string]bool{goodToken: true, third: true, otherToken: false} {
			c, err := d.login(t, w, token)
			if w != "3" && err == nil { // text wires say nothing when it is right
				c.listen()
				c.send([]byte("X"))
				reason := map[bool]string{true: "bad_op", false: "auth_failed"}[ok]
				c.want(failed(w, 0, reason))
				continue
			}
			if (err == nil) != ok {
				t.Errorf("wire %s, token %.3s…: %v, want ok %v", w, token, err, ok)
			}
		}
	}
	for _, bad := range []string{"", "two words\n", strings.Repeat("x", 257) + "\n"} {
		replace(t, file, []byte(bad))
		d.signal(t, syscall.SIGHUP)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	d.signal(t, syscall.SIGHUP)
	eventually(t, answerLimit, "refusals in the log", func() bool { return strings.Count(d.log.String(), "level=ERROR") >= 1 })
	for _, w := range wires {
		stay[w].grant(3, 1, 60, "still"+w)
	}
}

// Certificates: 100 reloads under load drop no request; a bad new pair is refused and the old one goes on.
func TestCertificatesAreReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := spawn(t, writePair(t, dir, "pair 0")...)
	shows := func() string {
		conn, err := tls.Dial("tcp", d.addr["v1"], trust(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	var stop atomic.Bool
	var all sync.WaitGroup
	var served atomic.Int64
	for i, w := range wires {
		c := d.dial(t, w)
		all.Go(func() { // ends when the reloads have been done, or at the first request that is dropped
			key := fmt.Sprint("load", i)
			for n := uint64(1); !stop.Load(); n++ {
				c.send(c.wire.AppendAcquire(nil, n, 5, 30, []byte(key)))
				e := <-c.events
				if e.err != nil || e.token == 0 {
					t.Errorf("wire %s: request %d: %q (%v)", w, n, e.raw, e.err)
					return
				}
				c.send(c.wire.AppendRelease(nil, n, e.token, []byte(key)))
				if e = <-c.events; e.err != nil {
					t.Errorf("wire %s: release %d: %v", w, n, e.err)
					return
				}
				served.Add(1)
			}
		})
	}
	for i := range 100 {
		if i%10 == 0 {
			writePair(t, dir, fmt.Sprintf("pair %d", i+1))
		}
		from := served.Load()
		d.signal(t, syscall.SIGHUP)
		eventually(t, answerLimit, "requests go on", func() bool { return served.Load() > from })
	}
	eventually(t, answerLimit, "the last pair is shown", func() bool { return shows() == "pair 91" })
	cert, _ := issue(t, "torn")
	replace(t, filepath.Join(dir, "cert.pem"), cert)
	d.signal(t, syscall.SIGHUP)
	eventually(t, answerLimit, "the refusal in the log", func() bool { return strings.Contains(d.log.String(), "not read again") })
	if got := shows(); got != "pair 91" {
		t.Errorf("after a bad pair %q is shown, want the old one", got)
	}
	stop.Store(true)
	all.Wait()
	t.Logf("%d requests served", served.Load())
}

// After load of every kind goroutines, descriptors, keys and waiters are back where they were.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	d := spawn(t)
	count := func() (goroutines, files float64) {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return d.metric(t, "go_goroutines"), float64(len(entries))
	}
	d.dial(t, "v1").conn.Close()
	goroutines, files := count()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { // ends with its connections
			for n := range 60 {
				w := wires[(i+n)%4]
				c, err := d.login(t, w, "")
				if err != nil {
					t.Errorf("wire %s: %v", w, err)
					return
				}
				key := []byte(fmt.Sprintf("n%d", n%5))
				b := c.wire.AppendAcquire(nil, uint64(1+n), 5, 1, key)
				b = c.wire.AppendAcquire(b, uint64(100+n), 1, 1, key)
				if n%3 == 0 {
					b = append(b, 'A', 0)
				}
				if n%7 == 0 {
					b = append(b, 'X')
				}
				if _, err := c.conn.Write(b); err != nil {
					t.Errorf("wire %s: %v", w, err)
				}
				c.conn.Close()
			}
		})
	}
	all.Wait()
	eventually(t, 20*time.Second, "keys, waiters and connections gone", func() bool {
		return d.metric(t, "ticketing_keys") == 0 && d.metric(t, "ticketing_waiters") == 0 && d.metric(t, "ticketing_connections") == 0
	})
	eventually(t, answerLimit, "goroutines and descriptors back", func() bool {
		g, f := count()
		return g <= goroutines+2 && f <= files+2 // the page that counts has some of its own
	})
	if n := d.metric(t, "ticketing_idle_keys_with_waiter"); n != 0 {
		t.Errorf("%v idle keys with a waiter, want 0", n)
	}
}

// DATA_DIR in single mode: after a kill -9 tokens are higher, and nothing is granted before the longest lease is over.
func TestDataDirectoryAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := spawn(t, "DATA_DIR="+dir)
	c := d.dial(t, "v1")
	var last uint64
	for i := range 5 {
		last = c.grant(1, 1, 4, fmt.Sprint("k", i))
	}
	d.signal(t, syscall.SIGKILL)
	<-d.done
	begin := time.Now()
	d = spawn(t, "DATA_DIR="+dir)
	if code, body := d.page("/readyz"); code != 503 || !strings.Contains(body, "grace") {
		t.Errorf("/readyz in the grace: %d %q, want 503 and the reason", code, body)
	}
	for _, w := range wires {
		c := d.dial(t, w)
		c.send(c.wire.AppendAcquire(nil, 2, 30, 4, []byte("k0")))
		c.want(refused(w, 'B', 2, "k0"))
	}
	d.ready(t, 10*time.Second)
	wantTook(t, begin, 4*time.Second, 6*time.Second)
	if got := d.dial(t, "v1").grant(3, 1, 4, "k0"); got <= last {
		t.Errorf("token %d after a restart, want more than %d", got, last)
	}
	// GRACE overrides it; the counter goes on all the same.
	d.signal(t, syscall.SIGKILL)
	<-d.done
	d = spawn(t, "DATA_DIR="+dir, "GRACE=0", "FIRST_TOKEN=2")
	if got := d.dial(t, "v1").grant(3, 1, 4, "k0"); got <= last+1 {
		t.Errorf("token %d after a second restart, want more than %d", got, last+1)
	}
}
