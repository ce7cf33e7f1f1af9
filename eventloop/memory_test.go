package eventloop

import (
	"crypto/tls"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// An idle connection costs at most 16 KiB; in plain text far less.
func TestIdleMemory(t *testing.T) {
	const n = 1000
	answer := []byte(strings.Repeat("-", 43) + "\n")
	t.Run("plain", func(t *testing.T) {
		r := start(t, nil)
		a, err := net.ResolveTCPAddr("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		before := heap()
		for range n { // bare descriptors: the clients cost no memory of the process
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := unix.Connect(fd, &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.Write(fd, append(answer, acquire(1, "k")...)); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "all to be served", 10*time.Second, func() bool { return r.e.Stats().Replies == n })
		r.h.mu.Lock()
		r.h.events = nil
		r.h.mu.Unlock()
		each := (int(heap()) - int(before)) / n
		t.Logf("%d bytes a connection", each)
		if each > 2<<10 {
			t.Errorf("%d bytes a connection, want at most 2048", each)
		}
	})
	t.Run("tls", func(t *testing.T) {
		r := secureRig(t, nil)
		before := heap()
		var cs []net.Conn
		for range n / 5 {
			c, err := tls.Dial("tcp", r.addr, clientConfig)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Write(append(answer, acquire(1, "k")...)); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 16)
			if _, err := c.Read(buf); err != nil {
				t.Fatal(err)
			}
			cs = append(cs, c)
		}
		until(t, "all to be served", 10*time.Second, func() bool { return r.e.Stats().Replies == n/5 })
		each := (int(heap()) - int(before)) / len(cs)
		t.Logf("%d bytes a connection, the client's end included", each)
		if each > 32<<10 {
			t.Errorf("%d bytes a connection and client, want at most 32768", each)
		}
	})
}
