package load

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/bench/ceiling"
)

const testToken = "a client token of the test"

// startCeiling runs the reference server in this process until the test ends.
func startCeiling(t *testing.T) Target {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1) // one result
	go func() {                  // ends with the test's cleanup
		ended <- ceiling.Run(ctx, ceiling.Options{Addr: addr, Token: []byte(testToken), Loops: 2, ReadBuffer: 1 << 10, SendBuffer: 64 << 10})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("ceiling: %v", err)
		}
	})
	target := Target{Addr: addr, Token: []byte(testToken), PID: os.Getpid()}
	for deadline := time.Now().Add(5 * time.Second); ; {
		p, err := Connect(target, 1)
		if err == nil {
			p.Close()
			return target
		}
		if time.Now().After(deadline) {
			t.Fatalf("no ceiling: %v", err)
		}
	}
}

// Every slot goes on getting its answers, through a read buffer that cuts frames at odd places.
func TestOwnKeys(t *testing.T) {
	target := startCeiling(t)
	for _, l := range []OwnKeys{
		{Conns: 1, Depth: 1, KeyBytes: 24},
		{Conns: 5, Depth: 200, KeyBytes: 128},
		{Conns: 3, Depth: 67, KeyBytes: MinKeyBytes},
	} {
		l.Warm, l.Measure = 20*time.Millisecond, 100*time.Millisecond
		r, err := l.Run(target)
		if err != nil || r.Void || r.Replies < 100 || r.AcquireP50 <= 0 || r.AcquireP50 > r.AcquireP99 || r.RoundTripP50 <= 0 {
			t.Errorf("%+v: %+v, %v", l, r, err)
		}
	}
}

func TestWrongToken(t *testing.T) {
	target := startCeiling(t)
	target.Token = []byte("another token")
	_, err := OwnKeys{Conns: 1, Depth: 1, KeyBytes: 24, Measure: time.Second}.Run(target)
	if !errors.Is(err, ErrRefused) {
		t.Errorf("run with a wrong token: %v, want %v", err, ErrRefused)
	}
}

// Slots are found again by their keys, whatever their number.
func TestSlotKey(t *testing.T) {
	seen := make(map[string]bool)
	for _, conn := range []int{0, 1, 65535} {
		for index := range MaxDepth {
			key := slotKey("0123456789", conn, index, MinKeyBytes)
			if len(key) != MinKeyBytes || slotOf(key) != index || seen[string(key)] {
				t.Fatalf("slotKey(%d, %d) = %q, slot %d", conn, index, key, slotOf(key))
			}
			seen[string(key)] = true
		}
	}
}
