package ring

import "sync/atomic"

// Bell wakes one sleeper. The sleeper says that it is about to sleep, looks once more for work, and sleeps; whoever makes
// work rings after having made it visible. A ring that finds nobody about to sleep costs one load.
//
//	for {
//		for work() {
//		}
//		bell.Arm()
//		if !work() {
//			<-bell.C() // or with others in a select
//		}
//		bell.Disarm()
//	}
type Bell struct {
	armed atomic.Uint32
	// One slot: however often it rings, there is one sleeper to wake once.
	c chan struct{}
}

// NewBell makes a bell that is not armed.
func NewBell() *Bell { return &Bell{c: make(chan struct{}, 1)} }

// Arm says that the sleeper is about to sleep: from now on a ring wakes it.
func (b *Bell) Arm() { b.armed.Store(1) }

// Disarm says that the sleeper is awake. It also takes back a ring that came too late to be needed.
func (b *Bell) Disarm() {
	if b.armed.Swap(0) == 0 {
		select {
		case <-b.c:
		default:
		}
	}
}

// C is what the sleeper waits for.
func (b *Bell) C() <-chan struct{} { return b.c }

// Ring wakes the sleeper if it sleeps or is about to. Any goroutine may call it.
func (b *Bell) Ring() {
	if b.armed.Load() == 1 && b.armed.CompareAndSwap(1, 0) {
		b.c <- struct{}{} // never blocks: only who disarms it sends, and Disarm empties it before the next Arm
	}
}
