package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// A process is ready when Start returns, has the limit it was given, and is gone when Stop returns.
func TestProcess(t *testing.T) {
	bin, err := Build(context.Background(), Ceiling, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p, err := StartCeiling(Options{Bin: bin, OpenFiles: 77})
	if err != nil {
		t.Fatal(err)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.PID))
	switch {
	case errors.Is(err, os.ErrNotExist):
		t.Log("no /proc: the limit is not checked")
	case err != nil:
		t.Error(err)
	case !strings.Contains(strings.Join(strings.Fields(string(limits)), " "), "Max open files 77 77"):
		t.Errorf("limits are\n%s", limits)
	}
	if !p.Alive() {
		t.Error("not alive after Start")
	}
	if err := p.Stop(); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if p.Alive() {
		t.Error("alive after Stop")
	}
	if err := p.Stop(); !errors.Is(err, ErrExited) {
		t.Errorf("second Stop: %v, want %v", err, ErrExited)
	}
}

// A process that ends before it is ready is told from one that is slow, with what it has said.
func TestExitedAtStart(t *testing.T) {
	_, err := StartCeiling(Options{Bin: "/bin/sh", Args: []string{"ignored"}})
	if !errors.Is(err, ErrExited) {
		t.Errorf("Start: %v, want %v", err, ErrExited)
	}
}
