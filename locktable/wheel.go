package locktable

import (
	"math/bits"
	"time"
)

// A wheel keeps deadlines in whole milliseconds: five levels of 64 slots, each level 64 times coarser than the one
// below. Scheduling and cancelling touch one list each whatever is scheduled besides, which a heap cannot say: with a
// million leases running a removal from the middle of a heap walks ten cold cache lines.
const (
	wheelLevels = 5
	wheelBits   = 6
	wheelSlots  = 1 << wheelBits
	wheelMask   = wheelSlots - 1

	never     = int64(1)<<46 - 1 // the tick of what is never due: 2,200 years
	atShift   = 16
	whereMask = 1<<atShift - 1
	unlinked  = 0 // where, for a timer that is in no slot; else 1 + level<<wheelBits + slot
)

// timer is a node's place in a wheel: its neighbours in the slot's list, and when it is due (milliseconds, high 48 bits)
// beside where it stands (low 16 bits).
type timer[N any] struct {
	prev, next N
	atWhere    int64
}

func (t *timer[N]) at() int64    { return t.atWhere >> atShift }
func (t *timer[N]) linked() bool { return t.atWhere&whereMask != unlinked }

// note sets when an unlinked timer would be due.
func (t *timer[N]) note(at int64) { t.atWhere = at << atShift }

type timed[N any] interface {
	comparable
	timer() *timer[N]
}

// wheel is ready when zero; its nodes are pointers.
type wheel[N timed[N]] struct {
	tick     int64 // everything due at or before it has fired
	occupied [wheelLevels]uint64
	slots    [wheelLevels][wheelSlots]N // head of a circular list
}

// millisUp is d in whole milliseconds, rounded up: a deadline never fires early.
func millisUp(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// schedule makes n due at the given tick; what is due already fires at the next tick. n must not be linked.
func (w *wheel[N]) schedule(n N, at int64) {
	n.timer().note(at)
	if at >= never {
		return
	}
	w.link(n, max(at, w.tick+1))
}

// link puts n into the slot of a tick after the present one.
func (w *wheel[N]) link(n N, at int64) {
	level, slot := wheelLevels-1, int((w.tick>>((wheelLevels-1)*wheelBits)+wheelMask)&wheelMask)
	for l := range wheelLevels {
		if shift := l * wheelBits; at>>shift-w.tick>>shift <= wheelMask {
			level, slot = l, int(at>>shift&wheelMask)
			break
		}
	}
	t := n.timer()
	t.atWhere = t.atWhere&^whereMask | int64(1+level<<wheelBits+slot)
	var none N
	if head := w.slots[level][slot]; head == none {
		t.prev, t.next = n, n
		w.slots[level][slot] = n
		w.occupied[level] |= 1 << slot
	} else {
		h := head.timer()
		t.prev, t.next = h.prev, head
		h.prev.timer().next = n
		h.prev = n
	}
}

// cancel takes n out; nothing happens if it is in no slot. When it would have been due stays readable.
func (w *wheel[N]) cancel(n N) {
	t := n.timer()
	where := t.atWhere & whereMask
	if where == unlinked {
		return
	}
	var none N
	level, slot := int(where-1)>>wheelBits, int(where-1)&wheelMask
	if t.next == n {
		w.slots[level][slot] = none
		w.occupied[level] &^= 1 << slot
	} else {
		t.prev.timer().next = t.next
		t.next.timer().prev = t.prev
		if w.slots[level][slot] == n {
			w.slots[level][slot] = t.next
		}
	}
	t.prev, t.next = none, none
	t.atWhere &^= whereMask
}

// next is the tick at which the wheel must be turned next: a deadline, or an earlier moment at which a coarse slot is
// spread over finer ones. never if it is empty.
func (w *wheel[N]) next() int64 {
	at := never
	for l, occupied := range w.occupied {
		if occupied == 0 {
			continue
		}
		here := w.tick >> (l * wheelBits)
		ahead := bits.TrailingZeros64(bits.RotateLeft64(occupied, -int(here&wheelMask)-1))
		at = min(at, (here+1+int64(ahead))<<(l*wheelBits))
	}
	return at
}

// turn moves the wheel to a tick which next has named, or to one before that.
func (w *wheel[N]) turn(to int64) {
	w.tick = to
	for l := 1; l < wheelLevels && to&(1<<(l*wheelBits)-1) == 0; l++ {
		slot := int(to >> (l * wheelBits) & wheelMask)
		for w.occupied[l]&(1<<slot) != 0 {
			n := w.slots[l][slot]
			w.cancel(n)
			w.link(n, max(n.timer().at(), to))
		}
	}
}

// due takes out one node that is due at the present tick.
func (w *wheel[N]) due() (n N, ok bool) {
	slot := int(w.tick & wheelMask)
	if w.occupied[0]&(1<<slot) == 0 {
		return n, false
	}
	n = w.slots[0][slot]
	w.cancel(n)
	return n, true
}
