package eventloop

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ticketing-go/ticketing/codec"
)

// leanHost grants every acquire. One goroutine decides, as in the server, with a queue each way for each loop.
type leanHost struct {
	e      *Engine
	inline bool // decide within Flush, as the server does where nobody else is at it
	loops  []leanQueue
	wake   chan struct{} // one slot: awake or about to be
}

type leanQueue struct {
	mu       sync.Mutex
	in, out  []leanItem
	taken    []leanItem // owned by the loop
	at       int
	reply    codec.Reply
	incoming []leanItem // owned by the loop until Flush
}

type leanItem struct {
	s   SessionID
	id  uint64
	n   int
	key [codec.MaxKeyBytes]byte
}

func (h *leanHost) Request(s SessionID, r *codec.Request) bool {
	q := &h.loops[s.Loop()]
	q.incoming = append(q.incoming, leanItem{s: s, id: r.ID})
	it := &q.incoming[len(q.incoming)-1]
	it.n = copy(it.key[:], r.Key)
	return true
}

func (h *leanHost) Flush(loop int) {
	q := &h.loops[loop]
	q.mu.Lock()
	if h.inline {
		q.out = append(q.out, q.incoming...)
	} else {
		q.in = append(q.in, q.incoming...)
	}
	q.mu.Unlock()
	q.incoming = q.incoming[:0]
	if h.inline {
		h.e.Kick(loop)
		return
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *leanHost) decide() {
	var batch []leanItem
	for range h.wake {
		for i := range h.loops {
			q := &h.loops[i]
			q.mu.Lock()
			batch, q.in = q.in, batch[:0]
			q.mu.Unlock()
			if len(batch) == 0 {
				continue
			}
			q.mu.Lock()
			q.out = append(q.out, batch...)
			q.mu.Unlock()
			h.e.Kick(i)
		}
	}
}

func (h *leanHost) NextReply(loop int) (SessionID, *codec.Reply, bool) {
	q := &h.loops[loop]
	if q.at == len(q.taken) {
		q.mu.Lock()
		q.taken, q.out = q.out, q.taken[:0]
		q.mu.Unlock()
		q.at = 0
		if len(q.taken) == 0 {
			return 0, nil, false
		}
	}
	it := &q.taken[q.at]
	q.at++
	q.reply = codec.Reply{Kind: codec.Granted, ID: it.id, Token: it.id, Key: it.key[:it.n]}
	return it.s, &q.reply, true
}

func (h *leanHost) RepliesTaken(int)                    {}
func (h *leanHost) Leave(SessionID)                     {}
func (h *leanHost) Disconnected(SessionID)              {}
func (h *leanHost) Undelivered(SessionID, *codec.Reply) {}

// BenchmarkRoundTrips is the whole way of an acquire: sockets, decoding, another goroutine's decision, batched writes. The
// clients are in the same process, so only differences between rows mean something.
func BenchmarkRoundTrips(b *testing.B) {
	for _, load := range []struct{ conns, depth int }{{1, 1}, {64, 1}, {64, 16}, {64, 48}, {8, 512}} {
		for _, read := range []int{4 << 10, 16 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("conns=%d/depth=%d/read=%dK", load.conns, load.depth, read>>10), func(b *testing.B) {
				benchmarkRoundTrips(b, load.conns, load.depth, read, false)
			})
		}
		b.Run(fmt.Sprintf("conns=%d/depth=%d/inline", load.conns, load.depth), func(b *testing.B) {
			benchmarkRoundTrips(b, load.conns, load.depth, 0, true)
		})
	}
}

func benchmarkRoundTrips(b *testing.B, conns, depth, read int, inline bool) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4)) // cores + loops
	h := &leanHost{inline: inline, loops: make([]leanQueue, 2), wake: make(chan struct{}, 1)}
	r := startWith(b, h, read)
	h.e = r       // before the first client
	go h.decide() // ends when wake is closed
	defer func() {
		_ = r.Finish(b.Context())
		close(h.wake)
	}()
	request := acquire(1, strings.Repeat("k", 32))
	batch := []byte(strings.Repeat(string(request), depth))
	reply := depth * (len(request) + 6) // token in place of wait and lease
	var wg sync.WaitGroup
	var cs []net.Conn
	for range conns {
		c, err := net.Dial("tcp", r.ports[0].text)
		if err != nil {
			b.Fatal(err)
		}
		cl := wrap(b, c)
		_ = c.SetDeadline(time.Time{})
		cl.send(cl.digest(""))
		cs = append(cs, c)
	}
	before := cpu()
	b.ResetTimer()
	for i, c := range cs {
		wg.Add(1)
		go func() { // ends after its share of b.N
			defer wg.Done()
			buf := make([]byte, reply)
			for n := i * depth; n < b.N; n += conns * depth {
				if _, err := c.Write(batch); err != nil {
					b.Error(err)
					return
				}
				if _, err := io.ReadFull(c, buf); err != nil {
					b.Error(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
	st := r.Stats()
	b.ReportMetric(float64(st.Replies)/float64(st.Writes), "replies/write")
}

func startWith(b *testing.B, h Host, read int) *Engine {
	e, err := Start(Config{
		Listeners: []Listener{{freePort(b, "127.0.0.1"), codec.V1}}, Loops: 2, MaxConnections: 1024, Host: h,
		ReadBufferBytes: read,
	})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

func cpu() time.Duration {
	var ru unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// A kick is never lost, however it falls between the looks of a drain.
func TestNoKickIsLost(t *testing.T) {
	h := &leanHost{loops: make([]leanQueue, 2), wake: make(chan struct{}, 1)}
	r := start(t, func(c *Config, _ *fakeHost) { c.Host, c.Loops = h, 1 })
	h.e = r.e
	go h.decide() // ends when wake is closed
	t.Cleanup(func() {
		_ = r.e.Finish(t.Context())
		close(h.wake)
	})
	// In rounds: a later kick would make up for a lost one.
	cs := []*client{r.dial(), r.dial(), r.dial()}
	buf := make([]byte, 1+8+8+2)
	for i := range 10000 {
		for _, c := range cs {
			c.send(acquire(uint64(i), "k"))
		}
		for j, c := range cs {
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := io.ReadFull(c.in, buf); err != nil {
				t.Fatalf("round %d, client %d: %v", i, j, err)
			}
		}
	}
}
