package locktable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"
	"unicode/utf8"
)

// Proposer names a stint of leadership: the incarnation of a node and a number that never repeats for it.
type Proposer struct {
	Incarnation [16]byte
	Stint       uint64
}

// StartTerms is what a start entry fixes: the lowest token that may be issued from then on, a time without grants if
// nothing was ever granted here before (CLUSTER.md: grace), and where the leader takes clients, as text that the table
// keeps and does not read.
type StartTerms struct {
	FirstToken Token
	Grace      time.Duration
	Addresses  string
}

// Record is what is agreed on at once: entries in order, with who proposed them and how far that leader's clock had run
// since its last record. Records of one stint count up from 0, which is the start entry.
type Record struct {
	By      Proposer
	Seq     uint64
	Advance time.Duration
	Entries []Entry
	Asks    []Ask // the grants asked for by all entries, in order
	Start   StartTerms
}

// EntryKind says what an entry does.
type EntryKind uint8

const (
	Step     EntryKind = iota + 1 // ends End, if it is not 0 and holds exactly Keys; then grants Asks
	Reaffirm                      // asks whether the holder of Keys was granted to ID over wire 0.3
	Barrier                       // nothing: says that all before it has been applied
	Start                         // begins the proposer's stint
)

// EndReason says why a token ends. It is for people and metrics: no rule reads it.
type EndReason uint8

const (
	ByRelease EndReason = iota
	ByExpiry
	ByRevoke
)

// Entry is one decision. Each part is done or not by its own precondition: End must hold exactly Keys, each ask's keys
// must be free.
type Entry struct {
	Kind EntryKind
	Why  EndReason
	End  Token
	ID   uint64
	Keys KeySet
	Asks int // how many of the record's asks are this entry's

	grant *grant // of End, on the node that proposed: saves a look-up, never decides
}

// Ask asks for one grant: its keys must be free.
type Ask struct {
	Keys  KeySet
	Lease time.Duration
	Owner uint64 // with Idempotent: who asked
	Flags Flags  // Idempotent, ByKey

	key *key // of a single key, on the node that proposed: saves a look-up, never decides
}

const recordVersion = 1

// ErrRecord is a record that cannot be read: not of this version, cut short, or with something in it that no table
// proposes.
var ErrRecord = errors.New("locktable: unreadable record")

// AppendRecord appends the bytes of r.
func AppendRecord(dst []byte, r *Record) []byte {
	dst = append(dst, recordVersion)
	dst = append(dst, r.By.Incarnation[:]...)
	dst = binary.BigEndian.AppendUint64(dst, r.By.Stint)
	dst = binary.AppendUvarint(dst, r.Seq)
	dst = binary.AppendUvarint(dst, uint64(r.Advance))
	dst = binary.AppendUvarint(dst, uint64(len(r.Entries)))
	asks := r.Asks
	for i := range r.Entries {
		e := &r.Entries[i]
		dst = append(dst, byte(e.Kind))
		switch e.Kind {
		case Step:
			dst = append(dst, byte(e.Why))
			dst = binary.AppendUvarint(dst, uint64(e.End))
			if e.End != 0 {
				dst = appendBytes(dst, e.Keys)
			}
			dst = binary.AppendUvarint(dst, uint64(e.Asks))
			for j := range asks[:e.Asks] {
				dst = appendAsk(dst, &asks[j])
			}
			asks = asks[e.Asks:]
		case Reaffirm:
			dst = binary.BigEndian.AppendUint64(dst, e.ID)
			dst = appendBytes(dst, e.Keys)
		case Start:
			dst = binary.AppendUvarint(dst, uint64(r.Start.FirstToken))
			dst = binary.AppendUvarint(dst, uint64(r.Start.Grace))
			dst = appendBytes(dst, r.Start.Addresses)
		}
	}
	return dst
}

func appendAsk(dst []byte, a *Ask) []byte {
	dst = append(dst, byte(a.Flags))
	dst = binary.AppendUvarint(dst, uint64(a.Lease))
	if a.Flags&Idempotent != 0 {
		dst = binary.BigEndian.AppendUint64(dst, a.Owner)
	}
	return appendBytes(dst, a.Keys)
}

func appendBytes[T ~[]byte | ~string](dst []byte, b T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// DecodeRecord reads what AppendRecord wrote. r borrows b; its slices are used again.
func DecodeRecord(b []byte, r *Record) error {
	in := reader{b: b}
	r.Entries, r.Asks, r.Start = r.Entries[:0], r.Asks[:0], StartTerms{}
	if in.byte() != recordVersion {
		return ErrRecord
	}
	copy(r.By.Incarnation[:], in.take(16))
	r.By.Stint = in.uint64()
	r.Seq = in.uvarint()
	r.Advance = in.duration()
	for n := in.uvarint(); n > 0 && !in.bad; n-- {
		e := Entry{Kind: EntryKind(in.byte())}
		switch e.Kind {
		case Step:
			r.Asks = in.step(&e, r.Asks)
		case Reaffirm:
			e.ID = in.uint64()
			e.Keys = in.keys()
		case Barrier:
		case Start:
			r.Start.FirstToken = Token(in.uvarint())
			r.Start.Grace = in.duration()
			r.Start.Addresses = string(in.take(int(in.uvarint())))
		default:
			in.bad = true
		}
		r.Entries = append(r.Entries, e)
	}
	if in.bad || len(in.b) > 0 {
		return ErrRecord
	}
	return nil
}

// reader takes a record or a snapshot apart; bad once something was missing or wrong, and from then on all is zero.
type reader struct {
	b   []byte
	bad bool
}

func (in *reader) take(n int) []byte {
	if in.bad || n < 0 || n > len(in.b) {
		in.bad = true
		return nil
	}
	b := in.b[:n]
	in.b = in.b[n:]
	return b
}

func (in *reader) byte() byte {
	if b := in.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (in *reader) uint64() uint64 {
	if b := in.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (in *reader) uvarint() uint64 {
	v, n := binary.Uvarint(in.b)
	if in.bad || n <= 0 {
		in.bad = true
		return 0
	}
	in.b = in.b[n:]
	return v
}

func (in *reader) duration() time.Duration {
	d := time.Duration(in.uvarint())
	if d < 0 {
		in.bad = true
	}
	return d
}

func (in *reader) keys() KeySet {
	s := KeySet(in.take(int(in.uvarint())))
	if !s.valid() {
		in.bad = true
	}
	return s
}

func (in *reader) step(e *Entry, asks []Ask) []Ask {
	e.Why = EndReason(in.byte())
	if e.Why > ByRevoke {
		in.bad = true
	}
	if e.End = Token(in.uvarint()); e.End != 0 {
		e.Keys = in.keys()
	}
	for n := in.uvarint(); n > 0 && !in.bad; n-- {
		asks = append(asks, in.ask())
		e.Asks++
	}
	return asks
}

func (in *reader) ask() Ask {
	a := Ask{Flags: Flags(in.byte())}
	a.Lease = in.duration()
	if a.Flags&Idempotent != 0 {
		a.Owner = in.uint64()
	}
	a.Keys = in.keys()
	if a.Lease <= 0 || a.Flags&^(Idempotent|ByKey) != 0 {
		in.bad = true
	}
	return a
}

const (
	maxKeyBytes = 128
	maxSetKeys  = 16
)

// valid says whether s is what KeySet promises.
func (s KeySet) valid() bool {
	var last []byte
	n := 0
	for rest := s; len(rest) > 0; n++ {
		size := 1 + int(rest[0])
		if size == 1 || size > 1+maxKeyBytes || size > len(rest) || !utf8.Valid(rest[1:size]) {
			return false
		}
		if n > 0 && bytes.Compare(last, rest[1:size]) >= 0 {
			return false
		}
		last, rest = rest[1:size], rest[size:]
	}
	return n >= 1 && n <= maxSetKeys
}

// first is the first key behind its length, and the rest of the set.
func (s KeySet) first() (name []byte, rest KeySet) {
	n := 1 + int(s[0])
	return s[:n:n], s[n:]
}
