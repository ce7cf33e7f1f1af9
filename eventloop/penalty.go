package eventloop

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

// penalties remembers which addresses answered challenges wrongly, PROTOCOL.md 1.8. Any goroutine may call it; the time
// is an argument, on any clock that only rises.
type penalties struct {
	mu     sync.Mutex
	byAddr map[netip.Addr]*list.Element
	recent *list.List // of *penalty, the latest wrong answer first
}

type penalty struct {
	addr  netip.Addr
	wrong [penaltyFree]time.Duration // ring of the latest wrong answers
	count int                        // of wrong, since the last quiet minute
	hold  time.Duration              // what the address's challenges are held back by
	last  time.Duration
}

func newPenalties() *penalties {
	return &penalties{byAddr: make(map[netip.Addr]*list.Element), recent: list.New()}
}

// penaltyAddr is what wrong answers are counted for: the address, of IPv6 its /64.
func penaltyAddr(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		p, err := a.Prefix(64)
		if err != nil {
			return a
		}
		return p.Addr()
	}
	return a
}

// failed counts a wrong answer.
func (p *penalties) failed(a netip.Addr, now time.Duration) {
	a = penaltyAddr(a)
	p.mu.Lock()
	defer p.mu.Unlock()
	el := p.byAddr[a]
	if el == nil {
		if p.recent.Len() >= penaltyCapacity {
			oldest := p.recent.Back()
			delete(p.byAddr, oldest.Value.(*penalty).addr)
			p.recent.Remove(oldest)
		}
		el = p.recent.PushFront(&penalty{addr: a})
		p.byAddr[a] = el
	} else {
		p.recent.MoveToFront(el)
	}
	e := el.Value.(*penalty)
	if e.count > 0 && now-e.last >= penaltyWindow {
		e.count, e.hold = 0, 0
	}
	slot := &e.wrong[e.count%penaltyFree]
	switch {
	case e.hold > 0:
		e.hold = min(2*e.hold, penaltyLongest)
	case e.count >= penaltyFree && now-*slot < penaltyWindow:
		e.hold = penaltyFirst
	}
	*slot = now
	e.count++
	e.last = now
}

// hold says how long the next challenge of an address is held back.
func (p *penalties) hold(a netip.Addr, now time.Duration) time.Duration {
	a = penaltyAddr(a)
	p.mu.Lock()
	defer p.mu.Unlock()
	el := p.byAddr[a]
	if el == nil {
		return 0
	}
	e := el.Value.(*penalty)
	if now-e.last >= penaltyWindow {
		return 0
	}
	return e.hold
}
