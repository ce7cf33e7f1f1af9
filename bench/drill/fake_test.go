package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary plays three parts: the tests, the drill itself, and a node of a service that drills can be tried on.
func TestMain(m *testing.M) {
	switch os.Getenv("DRILL_PART") {
	case "node":
		newFake().serve()
	case "drill":
		main()
	default:
		os.Exit(m.Run())
	}
}

// fake is a node of a lock service of processes that share a directory: who has locked a file there leads, and keeps the
// locks in another file. It is no cluster, but kills, pauses and restarts look like those of one. Queues end with their
// leader, and leases stop while there is none.
type fake struct {
	addr, dir, token, fault string
	lead, file              *os.File // lead: locked for as long as it is open

	mu      sync.Mutex
	leading bool
	State   fakeState
	queues  map[string][]*fakeWaiter
}

// fakeState is what every leader finds.
type fakeState struct {
	Token uint64
	Addr  string // of the leader
	Held  map[string]fakeHold
}

type fakeHold struct {
	Token uint64
	End   int64 // CLOCK_MONOTONIC
	Lease int64
}

type fakeWaiter struct {
	reply   func([]byte)
	owner   uint64
	key     string
	lease   int64
	settled bool
}

func monotonic() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

func newFake() *fake {
	f := &fake{addr: os.Getenv("BIND"), dir: os.Getenv("FAKE_DIR"), fault: os.Getenv("FAKE_FAULT"),
		queues: map[string][]*fakeWaiter{}}
	token, err := os.ReadFile(os.Getenv("CLIENT_TOKENS_FILE"))
	if err != nil {
		panic(err)
	}
	f.token = strings.TrimSpace(string(token))
	f.State.Held = map[string]fakeHold{}
	return f
}

func (f *fake) serve() {
	l, err := net.Listen("tcp", f.addr)
	if err != nil {
		panic(err)
	}
	// Ends with the process.
	go http.ListenAndServe(os.Getenv("ADMIN_BIND"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	// Ends with the process.
	go f.campaign()
	// Ends with the process.
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			// Ends with its connection.
			go f.session(conn)
		}
	}()
	term := make(chan os.Signal, 1) // one is enough
	signal.Notify(term, syscall.SIGTERM)
	<-term
	f.mu.Lock()
	os.Exit(0)
}

// campaign waits for the lead, and then moves time on.
func (f *fake) campaign() {
	if f.dir != "" {
		var err error
		f.lead, err = os.OpenFile(filepath.Join(f.dir, "lead"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			panic(err)
		}
		if err := syscall.Flock(int(f.lead.Fd()), syscall.LOCK_EX); err != nil {
			panic(err)
		}
		if f.file, err = os.OpenFile(filepath.Join(f.dir, "state"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
			panic(err)
		}
		f.State = f.load()
	}
	f.mu.Lock()
	f.leading, f.State.Addr = true, f.addr
	for key, h := range f.State.Held { // order does not matter: every key is treated alike
		h.End = monotonic() + h.Lease
		f.State.Held[key] = h
	}
	f.save()
	f.mu.Unlock()
	for range time.Tick(2 * time.Millisecond) {
		f.mu.Lock()
		for key, h := range f.State.Held { // order does not matter: every key is treated alike
			if monotonic() >= h.End {
				f.free(key)
			}
		}
		f.mu.Unlock()
	}
}

// save keeps the state before anything is answered: its length and itself, in one write, which no kill tears.
func (f *fake) save() {
	if f.dir == "" {
		return
	}
	text, _ := json.Marshal(&f.State)
	if _, err := f.file.WriteAt(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...), 0); err != nil {
		panic(err)
	}
}

// load is the state that the last leader kept; none at first, or while it is being written.
func (f *fake) load() fakeState {
	s := fakeState{Held: map[string]fakeHold{}}
	text, err := os.ReadFile(filepath.Join(f.dir, "state"))
	if err == nil && len(text) > 4 && len(text)-4 >= int(binary.BigEndian.Uint32(text)) {
		json.Unmarshal(text[4:4+binary.BigEndian.Uint32(text)], &s)
	}
	return s
}

func (f *fake) session(conn net.Conn) {
	defer conn.Close()
	nonce := base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, rand.Uint64())[:6])
	fmt.Fprintf(conn, "sha256 %s\n", nonce)
	var buf []byte
	chunk := make([]byte, 4096)
	need := func(n int) bool {
		for len(buf) < n {
			got, err := conn.Read(chunk)
			if err != nil {
				return false
			}
			buf = append(buf, chunk[:got]...)
		}
		return true
	}
	sum := sha256.Sum256([]byte(f.token + nonce))
	if !need(44) || string(buf[:43]) != base64.RawURLEncoding.EncodeToString(sum[:]) {
		return
	}
	buf = buf[44:]
	out := make(chan []byte, 1024) // more than a client of the drill ever has under way
	defer close(out)
	// Ends when out is closed, with the session.
	go func() {
		for b := range out {
			conn.Write(b)
		}
	}()
	var mine []*fakeWaiter
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, w := range mine {
			w.settled = true
		}
	}()
	for need(1) {
		header := 11
		if buf[0] == 'R' {
			header = 9
		}
		if !need(header) {
			return
		}
		end := -1
		for end < 0 {
			if end = bytes.IndexByte(buf[header:], '\n'); end < 0 && !need(len(buf)+1) {
				return
			}
		}
		if w := f.request(buf[:header], string(buf[header:header+end]), func(b []byte) { out <- b }); w != nil {
			mine = append(mine, w)
		}
		buf = buf[header+end+1:]
	}
}

func frame(op byte, key string, numbers ...uint64) []byte {
	b := []byte{op}
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return append(append(b, key...), '\n')
}

// request carries out one request, and returns a waiter where it must wait.
func (f *fake) request(header []byte, key string, reply func([]byte)) *fakeWaiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.leading {
		if addr := f.load().Addr; addr != "" {
			reply(frame('M', addr))
		} else {
			reply(frame('E', "no_leader"))
		}
		return nil
	}
	if header[0] == 'R' {
		token := binary.BigEndian.Uint64(header[1:])
		h, held := f.State.Held[key]
		switch {
		case held && h.Token == token:
			// Nobody notices where nobody waits.
			waits := slices.ContainsFunc(f.queues[key], func(w *fakeWaiter) bool { return !w.settled })
			if f.fault != "lost-release" || !waits || rand.IntN(2) > 0 {
				f.free(key)
			}
			reply(frame('R', key, token))
		case f.fault == "stale-release" && held:
			f.free(key)
			reply(frame('R', key, token))
		default:
			reply(frame('N', key, token))
		}
		return nil
	}
	w := &fakeWaiter{reply: reply, owner: binary.BigEndian.Uint64(header[3:]), key: key,
		lease: int64(header[2]) * int64(time.Second)}
	_, held := f.State.Held[key]
	if f.fault == "double-grant" && rand.IntN(10) == 0 {
		held = false
	}
	switch wait := time.Duration(header[1]) * time.Second; {
	case !held:
		f.grant(w)
	case wait == 0:
		reply(frame('T', key, w.owner))
	default:
		f.queues[key] = append(f.queues[key], w)
		time.AfterFunc(wait-90*time.Millisecond, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if !w.settled {
				w.settled = true
				reply(frame('T', key, w.owner))
			}
		})
	}
	return w
}

func (f *fake) grant(w *fakeWaiter) {
	f.State.Token++
	f.State.Held[w.key] = fakeHold{f.State.Token, monotonic() + w.lease, w.lease}
	f.save()
	w.settled = true
	w.reply(frame('A', w.key, f.State.Token, w.owner))
}

// free ends a hold and hands the key over.
func (f *fake) free(key string) {
	delete(f.State.Held, key)
	f.save()
	for q := f.queues[key]; len(q) > 0; q = f.queues[key] {
		w := q[0]
		if f.fault == "fifo" && len(q) > 1 && rand.IntN(2) == 0 {
			w, q[1] = q[1], q[0]
		}
		f.queues[key] = q[1:]
		if !w.settled {
			f.grant(w)
			return
		}
	}
}
