package eventloop

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/codec"
)

// A peer that falls silent without a word is gone within 30 s, whether something was on its way to it or not. The child has
// a network of its own, in which a packet filter then drops everything.
func TestDeadPeer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes 25 s")
	}
	cmd := exec.Command("unshare", "-n", "sh", "-c", `ip link set lo up && exec "$0"`, os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=deadpeer")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	text := string(out)
	if !strings.Contains(text, "network ready") {
		t.Skipf("needs unshare, ip and nft, as root: %v %s%s", err, text, stderr.String())
	}
	if err != nil || !strings.Contains(text, "idle gone") || !strings.Contains(text, "busy gone") {
		t.Fatalf("%v\n%s%s", err, text, stderr.String())
	}
	t.Log(text)
}

func init() { children["deadpeer"] = deadPeerChild }

func deadPeerChild() {
	fail := func(a ...any) {
		fmt.Println(a...)
		os.Exit(3)
	}
	for _, rule := range []string{"add table inet t", "add chain inet t in { type filter hook input priority 0 ; policy accept ; }"} {
		if out, err := exec.Command("nft", rule).CombinedOutput(); err != nil {
			fail(err, string(out))
		}
	}
	fmt.Println("network ready")
	h := &fakeHost{}
	h.mu.Lock()
	e, err := Start(Config{
		Listeners: []Listener{{"127.0.0.1:5225", codec.V1}}, MaxConnections: 10, Host: h, Log: slog.New(slog.DiscardHandler),
	})
	h.e = e
	h.mu.Unlock()
	if err != nil {
		fail(err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	names := map[SessionID]string{}
	for i, name := range []string{"idle", "busy"} {
		c, err := net.Dial("tcp", "127.0.0.1:5225")
		if err != nil {
			fail(err)
		}
		defer c.Close()
		_, _ = c.Write(append([]byte(strings.Repeat("-", 43)+"\n"), acquire(uint64(i), "k")...))
		for len(h.all("acquire")) <= i {
			<-tick.C
		}
		names[h.all("acquire")[i].s] = name
	}
	busy := h.all("acquire")[1].s
	if out, err := exec.Command("nft", "add rule inet t in drop").CombinedOutput(); err != nil {
		fail(err, string(out))
	}
	begin := time.Now()
	h.say(queued{busy, codec.Reply{Kind: codec.TimedOut, ID: 1, Key: []byte("k")}})
	for seen := 0; seen < 2; {
		if time.Since(begin) > 30*time.Second {
			fail("not gone within 30 s")
		}
		gone := h.all("disconnected")
		for ; seen < len(gone); seen++ {
			fmt.Println(names[gone[seen].s], "gone after", time.Since(begin).Round(100*time.Millisecond))
		}
		<-tick.C
	}
}
