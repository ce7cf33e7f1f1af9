package locktable

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"
)

const snapshotVersion = 1

// Snapshot appends the replicated part: equal parts give equal bytes.
func (t *Table) Snapshot(dst []byte) []byte {
	dst = append(dst, snapshotVersion)
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.rep.next))
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.rep.clock))
	dst = append(dst, t.rep.stint.Incarnation[:]...)
	dst = binary.BigEndian.AppendUint64(dst, t.rep.stint.Stint)
	started := byte(0)
	if t.rep.started {
		started = 1
	}
	dst = append(dst, started)
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.rep.graceEnds))
	dst = appendBytes(dst, t.rep.addresses)
	grants := make([]*grant, 0, t.rep.grants)
	t.index.each(func(k *key) { // order does not matter: sorted below
		if g := k.holder; g != nil && g.key == k {
			grants = append(grants, g)
		}
	})
	slices.SortFunc(grants, func(a, b *grant) int { return cmp.Compare(a.token, b.token) })
	dst = binary.AppendUvarint(dst, uint64(len(grants)))
	for _, g := range grants {
		dst = binary.AppendUvarint(dst, uint64(g.token))
		dst = binary.AppendUvarint(dst, uint64(g.at))
		dst = appendAsk(dst, &Ask{Keys: g.keys(), Lease: g.lease, Owner: g.owner, Flags: g.flags})
	}
	return dst
}

// Restore replaces the replicated part by that of a snapshot; b is the caller's again when it returns. The own stint
// ends: what became of its records is not known here. After an error, ErrRecord, the table is as it was.
func (t *Table) Restore(now time.Duration, b []byte) error {
	fresh := New(t.limits, 1, t.sink)
	in := reader{b: b}
	if in.byte() != snapshotVersion {
		return ErrRecord
	}
	r := &fresh.rep
	next := Token(in.uint64())
	r.clock = time.Duration(in.uint64())
	copy(r.stint.Incarnation[:], in.take(16))
	r.stint.Stint = in.uint64()
	r.started = in.byte() == 1
	r.graceEnds = time.Duration(in.uint64())
	r.addresses = string(in.take(int(in.uvarint())))
	last := Token(0)
	for n := in.uvarint(); n > 0 && !in.bad; n-- {
		r.next = Token(in.uvarint())
		at := in.duration()
		ask := in.ask()
		if in.bad || r.next <= last || at > r.clock {
			return ErrRecord
		}
		last = r.next
		clock := r.clock
		r.clock = at
		if fresh.applyGrant(&ask) == 0 {
			return ErrRecord
		}
		r.clock = clock
	}
	if in.bad || len(in.b) > 0 || next <= last || r.clock < 0 || r.graceEnds < 0 {
		return ErrRecord
	}
	r.next = next
	fresh.reap()
	t.Lose(now)
	t.rep, t.index, t.held, t.keysGate = fresh.rep, fresh.index, fresh.held, fresh.keysGate
	return nil
}
