package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

// tryOut runs a drill on the fake.
func tryOut(t *testing.T, name string, count int, fault string, change func(*settings)) (ok bool, out string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &settings{name: name, count: count, bin: self, nodes: 3, seed: uint64(time.Now().UnixNano()),
		election: 200 * time.Millisecond, limit: time.Minute, keep: t.TempDir()}
	if name == "single" {
		s.nodes = 1
	} else {
		s.env = append(s.env, "FAKE_DIR="+t.TempDir())
	}
	s.env = append(s.env, "DRILL_PART=node", "FAKE_FAULT="+fault)
	if change != nil {
		change(s)
	}
	var text strings.Builder
	ok, err = run(s, &text)
	if err != nil {
		t.Error(err)
	}
	return ok, text.String()
}

// Every drill that the fake can stand passes on it.
func TestDrillsPass(t *testing.T) {
	for name, count := range map[string]int{"calm": 3, "single": 3, "kill-leader": 3, "kill-follower": 2, "pause": 2,
		"replace": 3, "churn": 2} { // order does not matter: each is a test of its own
		t.Run(name, func(t *testing.T) {
			ok, out := tryOut(t, name, count, "", nil)
			if !ok {
				t.Errorf("failed:\n%s", out)
			}
			t.Log(out)
		})
	}
}

// Faults of the service are caught, with and without that being expected.
func TestDrillsCatch(t *testing.T) {
	for _, fault := range []string{"double-grant", "lost-release", "stale-release", "fifo"} {
		t.Run(fault, func(t *testing.T) {
			ok, out := tryOut(t, "calm", 8, fault, func(s *settings) { s.expectCaught = true })
			if !ok {
				t.Errorf("not caught:\n%s", out)
			}
			t.Log(out)
			if ok, out = tryOut(t, "calm", 8, fault, nil); ok {
				t.Errorf("passed with the fault:\n%s", out)
			}
		})
	}
	if ok, out := tryOut(t, "calm", 1, "", func(s *settings) { s.expectCaught = true }); ok {
		t.Errorf("a fault was caught where there is none:\n%s", out)
	}
}
