package eventloop

import "runtime"

// PlannedLoops is the number of loops that Start runs for a Config.Loops of configured: sessions name them 0 to one less.
func PlannedLoops(configured int) int {
	switch {
	case !manyLoops:
		return 1
	case configured == 0:
		return defaultLoops(runtime.NumCPU())
	}
	return configured
}
