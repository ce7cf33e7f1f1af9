package ring

import "sync/atomic"

// Bell wakes one sleeper. The sleeper says that it is about to sleep, looks once more for work, and sleeps; whoever makes
// work rings after having made it visible. A ring that finds nobody about to sleep costs one load.
//
//	for {
//		for work() {
//		}
//		bell.Arm()
//		woken := false
//		if !work() {
//			<-bell.C() // or with others in a select
//			woken = true
//		}
//		bell.Disarm(woken)
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

// Disarm says that the sleeper is awake; woken, that it has received from C since Arm. Every ring is received once: one that
// nobody slept for is taken here, so that it neither wakes the next sleep nor blocks whoever rings then.
func (b *Bell) Disarm(woken bool) {
	if !woken && b.armed.Swap(0) == 0 {
		<-b.c // whoever disarmed it is about to send
	}
}

// C is what the sleeper waits for.
func (b *Bell) C() <-chan struct{} { return b.c }

// Ring wakes the sleeper if it sleeps or is about to. Any goroutine may call it.
func (b *Bell) Ring() {
	if b.armed.Load() == 1 && b.armed.CompareAndSwap(1, 0) {
		b.c <- struct{}{} // never blocks: who disarms it sends once, and that is received before the next Arm
	}
}
