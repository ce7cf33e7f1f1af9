//go:build !planted

package locktable

// planting is true in a build that has faults planted, to see whether the drills catch them: go build -tags planted.
const planting = false

func planted(Fault, uint64) bool { return false }

func (t *Table) doubled([]named) bool { return false }

func (t *Table) ousted(*key, KeySet) bool { return false }

func (t *Table) answerEarly(*flight) {}

func (t *Table) answered(*waiter) bool { return false }

func (t *Table) unanswer(*waiter) {}
