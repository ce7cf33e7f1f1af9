//go:build !race

package history

const (
	cleanRuns = 100
	faultRuns = 20
)
