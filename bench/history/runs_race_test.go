//go:build race

package history

// The race detector makes the search ten times as slow. What it looks for are races, and few runs show those.
const (
	cleanRuns = 12
	faultRuns = 3
)
