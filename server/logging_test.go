package server

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// stuck is a log that takes nothing until it is let go.
type stuck struct {
	bytes.Buffer // touched by the log's goroutine alone until end has returned true
	entered, let chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	select {
	case s.entered <- struct{}{}:
	default:
	}
	<-s.let
	return s.Buffer.Write(p)
}

// Whoever logs goes on though nobody reads; what was too much is told of; what has been logged before the end is written.
func TestLogNeverWaits(t *testing.T) {
	settings, _ := mustLoad(t, nil)
	w := &stuck{entered: make(chan struct{}, 1), let: make(chan struct{})}
	log, end := OpenLog(&settings, w)
	log.Info("first")
	<-w.entered // it is with w: nothing else waits
	for range logBacklog + 3 {
		log.Info("more")
	}
	close(w.let)
	if !end() {
		t.Fatal("the lines are not written")
	}
	if got := strings.Count(w.String(), "msg=more"); got != logBacklog || !strings.Contains(w.String(), "lines=3") {
		t.Errorf("%d lines, want %d and a word about 3: %.300s", got, logBacklog, w.String())
	}
}

func TestEndOfLogDoesNotWaitForEver(t *testing.T) {
	settings, _ := mustLoad(t, nil)
	r, w := io.Pipe() // takes nothing without a reader
	defer r.Close()
	log, end := OpenLog(&settings, w)
	log.Info("unread")
	begin := time.Now()
	if end() {
		t.Error("end says that the line is written")
	}
	if took := time.Since(begin); took > logTimeout+2*time.Second {
		t.Errorf("end took %v", took)
	}
}
