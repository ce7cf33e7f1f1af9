package server

import (
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

// Lines that wait for a reader of the log.
const (
	logBacklog = 1024                   // beyond it lines are lost: a loop that logs must not wait for who reads
	logTimeout = 250 * time.Millisecond // how long the end waits for the last ones
)

// NewLog makes the daemon's log, in the form and from the level that the settings say. Every line names the node.
func NewLog(s *Settings, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: s.LogLevel}
	var h slog.Handler = slog.NewTextHandler(w, opts)
	if s.LogJSON {
		h = slog.NewJSONHandler(w, opts)
	}
	return slog.New(h).With("node", s.NodeName)
}

// OpenLog is NewLog for a w that may block: whoever logs never waits for it. Lines that find no room are lost, and told of
// with one line as soon as w takes lines again. end, to be called once, waits a moment for what has been logged before and
// says whether w has taken it all; what is logged afterwards is lost.
func OpenLog(s *Settings, w io.Writer) (log *slog.Logger, end func() bool) {
	b := &unread{lines: make(chan []byte, logBacklog), quit: make(chan struct{}), done: make(chan struct{})}
	go b.run(w, NewLog(s, w)) // ends with quit, or with the process if w blocks for good
	return NewLog(s, b), b.end
}

// unread is a writer that keeps lines for a reader, and never blocks.
type unread struct {
	lines chan []byte
	lost  atomic.Uint64
	quit  chan struct{} // closed when the log ends
	done  chan struct{} // closed when everything has been written after that
}

// Write is io.Writer's. Of slog's handlers each call is one line.
func (b *unread) Write(line []byte) (int, error) {
	select {
	case b.lines <- append([]byte(nil), line...):
	default:
		b.lost.Add(1)
	}
	return len(line), nil
}

// run writes lines to w. direct logs to the same w.
func (b *unread) run(w io.Writer, direct *slog.Logger) {
	defer close(b.done)
	for {
		select {
		case line := <-b.lines:
			b.put(w, direct, line)
		case <-b.quit:
			for len(b.lines) > 0 {
				b.put(w, direct, <-b.lines)
			}
			return
		}
	}
}

func (b *unread) put(w io.Writer, direct *slog.Logger, line []byte) {
	_, _ = w.Write(line) // a log that takes nothing has nowhere to say so
	if n := b.lost.Swap(0); n > 0 {
		direct.Warn("log lines are lost: they were not read", "lines", n)
	}
}

func (b *unread) end() bool {
	close(b.quit)
	late := time.NewTimer(logTimeout)
	defer late.Stop()
	select {
	case <-b.done:
		return true
	case <-late.C:
		return false
	}
}
