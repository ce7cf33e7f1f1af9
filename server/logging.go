package server

import (
	"io"
	"log/slog"
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
