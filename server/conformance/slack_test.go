package conformance

import (
	"sync"
	"time"
)

// How late this machine is: a goroutine wants to wake every measurePeriod and notes how late it was. Upper bounds of time
// are widened by that; lower bounds never are.
const (
	measurePeriod = 5 * time.Millisecond
	slackFloor    = 30 * time.Millisecond // what a test that reads sockets costs by itself
	slackFactor   = 4                     // a reply crosses that many queues for a processor
)

var lateness struct {
	sync.Mutex
	worst []late
}

type late struct {
	at time.Time
	by time.Duration
}

func measure() {
	ticker := time.NewTicker(measurePeriod)
	last := time.Now()
	for range ticker.C {
		now := time.Now()
		if by := now.Sub(last) - measurePeriod; by > 2*time.Millisecond {
			lateness.Lock()
			lateness.worst = append(lateness.worst, late{now, by})
			lateness.Unlock()
		}
		last = now
	}
}

// slack is what an upper bound of something that began at from is widened by.
func slack(from time.Time) time.Duration {
	lateness.Lock()
	defer lateness.Unlock()
	worst := time.Duration(0)
	for i := len(lateness.worst) - 1; i >= 0 && lateness.worst[i].at.After(from); i-- {
		worst = max(worst, lateness.worst[i].by)
	}
	return slackFloor + slackFactor*worst
}
