package server

import "github.com/ticketing-go/ticketing/ring"

// backlogKept is how many values a backlog that has emptied may have had room for and still keep it.
const backlogKept = 1024

// backlog is what found no room in a ring, in order. What has moved on is passed over, not closed up, so that a long
// backlog costs each value two copies however few find room at a time.
type backlog[T any] struct {
	list []T
	head int // list[head:] is what waits
}

func (b *backlog[T]) len() int { return len(b.list) - b.head }

// add gives the place of one more value behind the others. It is valid until the next call.
func (b *backlog[T]) add() *T {
	if len(b.list) == cap(b.list) && b.head > len(b.list)/2 {
		b.list = b.list[:copy(b.list, b.list[b.head:])]
		b.head = 0
	}
	var none T
	b.list = append(b.list, none)
	return &b.list[len(b.list)-1]
}

// moveTo moves what it can to the ring and says whether nothing is left.
func (b *backlog[T]) moveTo(r *ring.Ring[T]) bool {
	for ; b.head < len(b.list); b.head++ {
		slot := r.Slot()
		if slot == nil {
			return false
		}
		*slot = b.list[b.head]
	}
	b.list, b.head = b.list[:0], 0
	if cap(b.list) > backlogKept {
		b.list = nil
	}
	return true
}
