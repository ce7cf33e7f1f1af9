package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ticketing-go/ticketing/raftglue"
)

const secret = "a secret of the peers"

// quiet is a Machine that keeps nothing.
type quiet struct{}

func (quiet) Apply([][]byte)       {}
func (quiet) Snapshot() []byte     { return nil }
func (quiet) Restore([]byte) error { return nil }
func (quiet) Role(raftglue.Role)   {}

// console is a command line with an environment of its own.
type console map[string]string

func (c console) run(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(&world{func(k string) (string, bool) { v, ok := c[k]; return v, ok }, &o, &e}, args)
	return code, o.String(), e.String()
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		env  console
		args string
		code int
		says string
	}{
		{nil, "", exitUsage, "usage: ticketing COMMAND"},
		{nil, "--help", exitGood, "members replace"},
		{nil, "frobnicate", exitUsage, "frobnicate"},
		{nil, "init", exitUsage, "--peer"},
		{console{"CLUSTER": "a"}, "init", exitUsage, "CLUSTER"},
		{console{"CLUSTER": "a:1", "PEER_PORT_OFFSET": "x"}, "init", exitUsage, "PEER_PORT_OFFSET"},
		{nil, "init now", exitUsage, "now"},
		{nil, "init --first-token 0 --peer a:1", exitUsage, "1..18446744073709551614"},
		{nil, "init --first-token -5 --peer a:1", exitUsage, "first-token"},
		{nil, "init --abandon --grace 5 --peer a:1", exitUsage, "abandon"},
		{nil, "init --peer-token x", exitUsage, "peer-token"},
		{nil, "members replace 9 a:1 --peer a:1", exitUsage, "0..4"},
		{nil, "members remove --peer a:1", exitUsage, "SLOT"},
		{console{"PEER_TOKEN": secret, "PEER_TOKEN_FILE": "/x"}, "members --peer a:1", exitUsage, "both"},
		{console{"PEER_TOKEN_FILE": "/does/not/exist"}, "members --peer a:1", exitUsage, "PEER_TOKEN_FILE"},
		{console{"PEER_TLS_CA": "/does/not/exist"}, "members --peer a:1", exitUsage, "PEER_TLS_CA"},
		{console{"PEER_TLS_CERT": "/does/not/exist"}, "members --peer a:1", exitUsage, "PEER_TLS_CERT"},
		{console{"PEER_TOKEN": secret}, "members --peer 127.0.0.1:1", exitBad, "127.0.0.1:1"},
		{nil, "status now", exitUsage, "now"},
		{nil, "status --admin 127.0.0.1:1", exitBad, "127.0.0.1:1"},
	} {
		code, out, errs := c.env.run(strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out+errs, c.says) || strings.Contains(out+errs, secret) {
			t.Errorf("ticketing %s: exit code %d, %q%q; want %d and %q", c.args, code, out, errs, c.code, c.says)
		}
		if code != exitGood && strings.Count(errs, "\n") > 1 {
			t.Errorf("ticketing %s: more than one line: %q", c.args, errs)
		}
	}
}

func TestClusterCommands(t *testing.T) {
	var members []string
	for port := 29500; len(members) < 3 && port < 30000; port++ {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1000)); err == nil {
			l.Close()
			members = append(members, fmt.Sprintf("127.0.0.1:%d", port))
		}
	}
	for slot, self := range members {
		peer, err := raftglue.PeerAddress(self, 1000)
		if err != nil {
			t.Fatal(err)
		}
		n, err := raftglue.Start(raftglue.Config{
			Self: self, Members: members, PeerBind: peer, PeerPortOffset: 1000, PeerToken: []byte(secret),
			Election: 200 * time.Millisecond, Form: "explicit", NodeName: fmt.Sprint(slot), Addresses: self, Machine: quiet{},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := n.Stop(ctx); err != nil {
				t.Error(err)
			}
		}()
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := console{"PEER_TOKEN_FILE": file, "cluster": strings.Join(members, ",")}
	for _, step := range []struct {
		args, says string
		code       int
	}{
		{"members", "not ready: part of no cluster: run", exitGood},
		{"init --abandon", "cleared", exitGood},
		{"init --first-token 77 --grace 0", "first token 77, no grant for 0s", exitGood},
		{"init", "already", exitBad},
		{"init --abandon", "part of cluster", exitBad},
		{"members remove 4", "nobody is in slot 4", exitBad},
		{"members remove 1", "", exitGood},
		{"members remove 2", "too few", exitBad},
	} {
		code, out, errs := c.run(strings.Fields(step.args)...)
		if code != step.code || !strings.Contains(out+errs, step.says) {
			t.Fatalf("ticketing %s: exit code %d, %q%q; want %d and %q", step.args, code, out, errs, step.code, step.says)
		}
	}
	code, out, errs := c.run("members", "--json")
	var s raftglue.Status
	if err := json.Unmarshal([]byte(out), &s); code != exitGood || err != nil || len(s.Members) != 2 || s.Size != 3 {
		t.Errorf("members --json: exit code %d, %s%s: %v", code, out, errs, err)
	}
	if _, out, _ := c.run("members"); !strings.Contains(out, members[0]) {
		t.Errorf("members: %q", out)
	}
}

func TestStatus(t *testing.T) {
	print := strings.Repeat("ab", 32)
	page := fmt.Sprintf(`{"mode":"cluster","version":"1","identity_fingerprint":%q,"ready":false,"reason":"grace",`+
		`"cluster":{"cluster":"c1","slot":2,"role":"follower","term":7,"leader_slot":1}}`, print)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/status" {
			fmt.Fprint(w, page)
		}
	}))
	defer s.Close()
	at := strings.TrimPrefix(s.URL, "http://")
	code, out, _ := console{"ADMIN_BIND": at}.run("status")
	for _, want := range []string{"identity_fingerprint " + print + "\n", "slot 2, follower, term 7, leader in slot 1", "not ready: grace"} {
		if code != exitGood || !strings.Contains(out, want) {
			t.Errorf("exit code %d, %q; want %q", code, out, want)
		}
	}
	if code, out, _ := (console{}).run("status", "--json", "--admin", at); code != exitGood || out != page {
		t.Errorf("exit code %d, %q", code, out)
	}
}
