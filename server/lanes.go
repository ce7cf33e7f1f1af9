package server

import (
	"sync/atomic"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/ticketing-go/ticketing/codec"
	"github.com/ticketing-go/ticketing/eventloop"
	"github.com/ticketing-go/ticketing/locktable"
	"github.com/ticketing-go/ticketing/ring"
)

// The sizes of the rings between a loop and the apply goroutine, in slots of about 200 bytes.
const (
	// A request ring has room for all that may be in flight and two control messages for each connection; the rest, up to
	// the next power of two, is for acquires that the gate turns away.
	requestSlots = 32768
	_            = uint(requestSlots - maxAcquires - maxReleases - 2*8192)
	// A reply ring takes what a few drains answer. More waits in the lane's spill.
	replySlots = 8192
)

type requestKind uint8

const (
	anAcquire    requestKind = iota
	aBusyAcquire             // an acquire that the gate turned away: answered in its place
	aRelease
	aReject
	aLeave
	aDisconnect
	anUndelivered
)

// request is what a loop hands to the apply goroutine: a command or a control message.
type request struct {
	session eventloop.SessionID
	id      uint64
	token   uint64
	wait    time.Duration
	lease   time.Duration
	kind    requestKind
	flags   codec.Flags
	reason  codec.Reason
	size    uint8 // of key
	key     [1 + codec.MaxKeyBytes]byte
	set     *bytebufferpool.ByteBuffer // the keys, if there is more than one; the reader puts it back
}

// keys is the request's key set, valid as long as the slot is.
func (r *request) keys() locktable.KeySet {
	if r.set != nil {
		return r.set.B
	}
	return r.key[:r.size]
}

func (r *request) setKey(key []byte) {
	r.key[0] = byte(len(key))
	r.size = uint8(1 + copy(r.key[1:], key))
}

// reply is what the apply goroutine hands to a loop.
type reply struct {
	session eventloop.SessionID
	codec.Reply
	size uint8
	key  [codec.MaxKeyBytes]byte
}

// lane is the two rings of one loop with what found no room in them.
type lane struct {
	requests *ring.Ring[request]
	replies  *ring.Ring[reply]

	// starved: the loop was told that there is no room. The apply goroutine clears it and kicks the loop when it has made
	// some.
	starved atomic.Bool
	// spilled: replies wait in spill. The loop rings the bell when it has read some of the ring, and hands over no request
	// until then: whoever sends faster than its loop writes must not fill the memory with replies.
	spilled atomic.Bool

	control   backlog[request] // the loop's: control messages for which the ring had no room
	givenBack bool             // the loop's: a grant was, and is not flushed

	spill backlog[reply] // the apply goroutine's: replies for which the ring had no room
}

// host is the loops' side of the lanes.
type host struct {
	lanes []*lane
	gates gates
	bell  *ring.Bell // the apply goroutine's
	serve func()     // has what was handed over decided before long
	// muted says that this node leads, as it believes, but has heard from no majority for longer than its leader lease:
	// then it writes no grant. nil on a node alone.
	muted func() bool
}

func newHost(loops int) *host { return newSizedHost(loops, requestSlots, replySlots) }

// newSizedHost is newHost with the sizes of the rings, powers of two.
func newSizedHost(loops, requests, replies int) *host {
	h := &host{bell: ring.NewBell()}
	for range loops {
		h.lanes = append(h.lanes, &lane{
			requests: ring.New[request](requests),
			replies:  ring.New[reply](replies),
		})
	}
	return h
}

// Request is eventloop.Host's.
func (h *host) Request(s eventloop.SessionID, r *codec.Request) bool {
	l := h.lanes[s.Loop()]
	if h.try(l, s, r) {
		return true
	}
	// Said before the second try: room that is made after this is followed by a kick.
	l.starved.Store(true)
	return h.try(l, s, r)
}

func (h *host) try(l *lane, s eventloop.SessionID, r *codec.Request) bool {
	if l.spilled.Load() || l.control.len() > 0 && !l.moveControl() {
		return false
	}
	kind := aReject
	switch r.Op {
	case codec.KeepAlive:
		return true
	case codec.Acquire:
		kind = anAcquire
	case codec.Release:
		if kind = aRelease; !h.gates.enterRelease() {
			return false
		}
	}
	slot := l.requests.Slot()
	if slot == nil {
		if kind == aRelease {
			h.gates.leave(0, 1)
		}
		return false
	}
	if kind == anAcquire && !h.gates.enterAcquire() {
		kind = aBusyAcquire
	}
	slot.session, slot.kind, slot.flags, slot.reason = s, kind, r.Flags, r.Reason
	slot.id, slot.token, slot.wait, slot.lease = r.ID, r.Token, r.Wait, r.Lease
	slot.set = nil
	if r.Set != nil {
		slot.set = bytebufferpool.Get()
		_, _ = slot.set.Write(r.Set) // never fails
	} else {
		slot.setKey(r.Key)
	}
	return true
}

// Leave is eventloop.Host's.
func (h *host) Leave(s eventloop.SessionID) {
	h.lanes[s.Loop()].putControl(request{session: s, kind: aLeave})
}

// Disconnected is eventloop.Host's.
func (h *host) Disconnected(s eventloop.SessionID) {
	h.lanes[s.Loop()].putControl(request{session: s, kind: aDisconnect})
}

// Undelivered is eventloop.Host's.
func (h *host) Undelivered(s eventloop.SessionID, r *codec.Reply) {
	m := request{session: s, kind: anUndelivered, token: r.Token}
	m.setKey(r.Key)
	h.lanes[s.Loop()].putControl(m)
}

// putControl takes a control message in any case: what finds no room waits on the loop, so that neither side ever waits
// for the other.
func (l *lane) putControl(m request) {
	*l.control.add() = m
	l.moveControl()
}

// moveControl moves waiting control messages into the ring and says whether none are left.
func (l *lane) moveControl() bool {
	if l.control.moveTo(l.requests) {
		return true
	}
	// Said before the last try: room that is made after this is followed by a kick.
	l.starved.Store(true)
	return l.control.moveTo(l.requests)
}

// Flush is eventloop.Host's.
func (h *host) Flush(loop int) {
	l := h.lanes[loop]
	if l.control.len() > 0 {
		l.moveControl()
	}
	if l.requests.Publish() {
		h.serve()
	}
}

// waiting says whether requests wait that nobody may have seen.
func (h *host) waiting() bool {
	for _, l := range h.lanes {
		if l.requests.Len() > 0 {
			return true
		}
	}
	return false
}

// spilled says whether replies wait for room in a ring. A bell that a loop rang while the apply goroutine was awake has been
// heard by nobody, if another loop had the turn: so whoever gives it back rings again.
func (h *host) spilled() bool {
	for _, l := range h.lanes {
		if l.spilled.Load() {
			return true
		}
	}
	return false
}

// NextReply is eventloop.Host's.
func (h *host) NextReply(loop int) (eventloop.SessionID, *codec.Reply, bool) {
	l := h.lanes[loop]
	slot := l.replies.Next()
	if slot == nil {
		if l.control.len() > 0 || l.givenBack { // nothing else may come that flushes it
			l.givenBack = false
			l.moveControl()
			if l.requests.Publish() {
				h.bell.Ring()
			}
		}
		return 0, nil, false
	}
	slot.Key = slot.key[:slot.size]
	if slot.Kind == codec.Granted && h.muted != nil && h.muted() {
		h.Undelivered(slot.session, &slot.Reply) // no loop will say so of what is no grant any more
		l.givenBack = true
		slot.Kind = codec.LostProposed
	}
	return slot.session, &slot.Reply, true
}

// RepliesTaken is eventloop.Host's.
func (h *host) RepliesTaken(loop int) {
	l := h.lanes[loop]
	l.replies.Release()
	if l.spilled.Load() {
		h.bell.Ring()
	}
}

// slot is where the next reply of the lane goes: the ring, or, behind what waits there already, the spill.
func (l *lane) slot() *reply {
	if l.spill.len() == 0 {
		if s := l.replies.Slot(); s != nil {
			return s
		}
	}
	return l.spill.add()
}

// unspill moves what it can from the spill to the ring.
func (l *lane) unspill() {
	if l.spill.len() == 0 {
		return
	}
	// Said before the last try: what the loop reads after this is followed by a ring of the bell.
	l.spilled.Store(true)
	if l.spill.moveTo(l.replies) {
		l.spilled.Store(false)
	}
}
