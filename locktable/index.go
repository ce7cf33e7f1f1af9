package locktable

import (
	"bytes"
	"hash/maphash"
)

// index finds a key's state by its bytes. It is an open-addressing table in shards, each of which grows and shrinks by
// itself: a Go map never gives memory back, and one table of a million keys would be copied in one go.
type index struct {
	seed   maphash.Seed
	shards [indexShards]shard
	count  int
}

const (
	indexShards   = 256
	shardSlotsMin = 16 // not below, so that a small table under load neither grows nor shrinks
)

// shard is a linear-probing table; a power of two of slots, at most three quarters full.
type shard struct {
	slots []slot
	count int
}

type slot struct {
	hash uint64
	key  *key // nil: free
}

func newIndex() index { return index{seed: maphash.MakeSeed()} }

func (x *index) hash(name []byte) uint64 { return maphash.Bytes(x.seed, name) }

func (x *index) shardOf(hash uint64) *shard { return &x.shards[hash>>56] }

// find returns the key of that name (behind its length byte), or nil.
func (x *index) find(name []byte, hash uint64) *key {
	s := x.shardOf(hash)
	if s.count == 0 {
		return nil
	}
	mask := uint64(len(s.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		at := &s.slots[i]
		if at.key == nil {
			return nil
		}
		if at.hash == hash && bytes.Equal(at.key.name, name) {
			return at.key
		}
	}
}

// insert adds k, which must not be there.
func (x *index) insert(k *key, hash uint64) {
	s := x.shardOf(hash)
	if (s.count+1)*4 > len(s.slots)*3 {
		s.resize(max(shardSlotsMin, len(s.slots)*2))
	}
	s.put(k, hash)
	s.count++
	x.count++
}

// remove takes k out, which must be there.
func (x *index) remove(k *key, hash uint64) {
	s := x.shardOf(hash)
	mask := uint64(len(s.slots) - 1)
	i := hash & mask
	for s.slots[i].key != k {
		i = (i + 1) & mask
	}
	// Close the gap: whoever probed past it moves back, so that no mark of a removed key is needed.
	for j := (i + 1) & mask; s.slots[j].key != nil; j = (j + 1) & mask {
		if home := s.slots[j].hash & mask; (j-home)&mask >= (j-i)&mask {
			s.slots[i] = s.slots[j]
			i = j
		}
	}
	s.slots[i] = slot{}
	s.count--
	x.count--
	if len(s.slots) > shardSlotsMin && s.count*8 < len(s.slots) {
		s.resize(len(s.slots) / 2)
	}
}

func (s *shard) put(k *key, hash uint64) {
	mask := uint64(len(s.slots) - 1)
	i := hash & mask
	for s.slots[i].key != nil {
		i = (i + 1) & mask
	}
	s.slots[i] = slot{hash, k}
}

func (s *shard) resize(slots int) {
	old := s.slots
	s.slots = make([]slot, slots)
	for _, at := range old {
		if at.key != nil {
			s.put(at.key, at.hash)
		}
	}
}

// each calls f for every key, in no order that means anything. f must not change the index.
func (x *index) each(f func(*key)) {
	for i := range x.shards {
		for _, at := range x.shards[i].slots {
			if at.key != nil {
				f(at.key)
			}
		}
	}
}
