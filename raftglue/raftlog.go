package raftglue

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLog writes what Raft logs to slog, all of it for who looks closely: each election and each attempt to reach a dead
// peer is a warning or an error to Raft, and everyday life to a cluster. What an operator should know is logged by the
// package itself.
type raftLog struct {
	to   *slog.Logger
	name string
	args []any
}

func newRaftLog(to *slog.Logger) hclog.Logger { return &raftLog{to: to, name: "raft"} }

// Log is part of hclog.Logger.
func (l *raftLog) Log(level hclog.Level, msg string, args ...any) {
	if !l.to.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			if s, ok := f[0].(string); ok {
				args[i] = fmt.Sprintf(s, f[1:]...)
			}
		}
	}
	l.to.Debug(l.name+": "+msg, append([]any{"raft_level", level.String()}, args...)...)
}

// Trace is part of hclog.Logger.
func (l *raftLog) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }

// Debug is part of hclog.Logger.
func (l *raftLog) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }

// Info is part of hclog.Logger.
func (l *raftLog) Info(msg string, args ...any) { l.Log(hclog.Info, msg, args...) }

// Warn is part of hclog.Logger.
func (l *raftLog) Warn(msg string, args ...any) { l.Log(hclog.Warn, msg, args...) }

// Error is part of hclog.Logger.
func (l *raftLog) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *raftLog) enabled() bool { return l.to.Enabled(context.Background(), slog.LevelDebug) }

// IsTrace is part of hclog.Logger.
func (l *raftLog) IsTrace() bool { return l.enabled() }

// IsDebug is part of hclog.Logger.
func (l *raftLog) IsDebug() bool { return l.enabled() }

// IsInfo is part of hclog.Logger.
func (l *raftLog) IsInfo() bool { return l.enabled() }

// IsWarn is part of hclog.Logger.
func (l *raftLog) IsWarn() bool { return l.enabled() }

// IsError is part of hclog.Logger.
func (l *raftLog) IsError() bool { return l.enabled() }

// ImpliedArgs is part of hclog.Logger.
func (l *raftLog) ImpliedArgs() []any { return l.args }

// With is part of hclog.Logger.
func (l *raftLog) With(args ...any) hclog.Logger {
	return &raftLog{l.to.With(args...), l.name, append(append([]any{}, l.args...), args...)}
}

// Name is part of hclog.Logger.
func (l *raftLog) Name() string { return l.name }

// Named is part of hclog.Logger.
func (l *raftLog) Named(name string) hclog.Logger { return l.ResetNamed(l.name + "." + name) }

// ResetNamed is part of hclog.Logger.
func (l *raftLog) ResetNamed(name string) hclog.Logger { return &raftLog{l.to, name, l.args} }

// SetLevel is part of hclog.Logger; the level is slog's business.
func (l *raftLog) SetLevel(hclog.Level) {}

// GetLevel is part of hclog.Logger.
func (l *raftLog) GetLevel() hclog.Level {
	if l.enabled() {
		return hclog.Debug
	}
	return hclog.Error
}

// StandardLogger is part of hclog.Logger.
func (l *raftLog) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(o), "", 0)
}

// StandardWriter is part of hclog.Logger.
func (l *raftLog) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return lineWriter{l} }

type lineWriter struct{ l *raftLog }

// Write logs one line.
func (w lineWriter) Write(p []byte) (int, error) {
	w.l.Debug(string(p))
	return len(p), nil
}
