// Package ring moves values from one goroutine to one other without locks, and wakes the one that sleeps. It decides when
// a slot is visible to the other side and when a sleeper is woken; it refuses to know what passes through.
//
// A Ring has one producer and one consumer. Both work in place: the producer fills slots and publishes them many at a
// time with one store, the consumer reads them where they lie and gives them back many at a time with one store.
package ring

import "sync/atomic"

// cacheLine is what two cores must not share if both write. 64 bytes, and its neighbour is fetched with it.
const cacheLine = 128

// Ring is a bounded queue of values. Slot and Publish belong to the producer, Next and Release to the consumer.
type Ring[T any] struct {
	slots []T
	mask  uint64

	_         [cacheLine]byte
	published atomic.Uint64 // written by the producer: slots below it may be read
	_         [cacheLine]byte
	released  atomic.Uint64 // written by the consumer: slots below it may be filled again
	_         [cacheLine]byte

	filled       uint64 // producer's own: slots taken
	seenReleased uint64 // producer's copy of released
	_            [cacheLine]byte

	read          uint64 // consumer's own: slots read
	seenPublished uint64 // consumer's copy of published
}

// New makes an empty ring. capacity must be a power of two.
func New[T any](capacity int) *Ring[T] {
	if capacity <= 0 || capacity&(capacity-1) != 0 {
		panic("ring: capacity is not a power of two")
	}
	return &Ring[T]{slots: make([]T, capacity), mask: uint64(capacity - 1)}
}

// Slot takes the next free slot, or returns nil if all are taken. It holds what it held before. The consumer sees it
// after the next Publish.
func (r *Ring[T]) Slot() *T {
	if r.filled-r.seenReleased > r.mask {
		if r.seenReleased = r.released.Load(); r.filled-r.seenReleased > r.mask {
			return nil
		}
	}
	s := &r.slots[r.filled&r.mask]
	r.filled++
	return s
}

// Publish shows the consumer all slots taken so far. It says whether there were any new ones.
func (r *Ring[T]) Publish() bool {
	if r.filled == r.published.Load() {
		return false
	}
	r.published.Store(r.filled)
	return true
}

// Next returns the next published slot, or nil. It is the consumer's until Release.
func (r *Ring[T]) Next() *T {
	if r.read == r.seenPublished {
		if r.seenPublished = r.published.Load(); r.read == r.seenPublished {
			return nil
		}
	}
	s := &r.slots[r.read&r.mask]
	r.read++
	return s
}

// Release gives all slots read so far back to the producer.
func (r *Ring[T]) Release() { r.released.Store(r.read) }

// Len is the number of slots published and not released. Any goroutine may ask; the answer is old when it comes.
func (r *Ring[T]) Len() int {
	released := r.released.Load()
	return int(r.published.Load() - released)
}
