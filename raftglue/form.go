package raftglue

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// askAll asks all members at once and returns their answers in slot order, nil where none came. stranger is not nil if
// one of them was there and did not know this node's peer token, or either side's certificate was refused.
func (n *Node) askAll(q *question, timeout time.Duration) (out []*reply, stranger error) {
	out = make([]*reply, len(n.cfg.Members))
	errs := make([]error, len(n.cfg.Members))
	var wg sync.WaitGroup
	for slot, client := range n.cfg.Members {
		if client == n.cfg.Self {
			out[slot] = n.answer(q)
			continue
		}
		peer, _ := PeerAddress(client, n.cfg.PeerPortOffset) // validated
		wg.Go(func() {                                       // ends with its question
			r, err := n.ask(peer, Incarnation{}, q, timeout)
			var no *Refused
			if err == nil || errors.As(err, &no) {
				out[slot] = r
			}
			errs[slot] = err
		})
	}
	wg.Wait()
	if i := slices.IndexFunc(errs, isStranger); i >= 0 {
		stranger = fmt.Errorf("%w: give all nodes the same PEER_TOKEN, and certificates of one authority or no TLS", errs[i])
	}
	return out, stranger
}

func isStranger(err error) bool {
	var bad *tls.CertificateVerificationError
	return errors.Is(err, ErrPeerToken) || errors.As(err, &bad)
}

func (n *Node) helloAll(timeout time.Duration) (out []*hello, stranger error) {
	out = make([]*hello, len(n.cfg.Members))
	replies, stranger := n.askAll(&question{Op: opHello}, timeout)
	for i, r := range replies {
		if r != nil {
			out[i] = r.Hello
		}
	}
	return out, stranger
}

// form makes this node the coordinator of a new cluster: look at all members, have all of them promise, and begin it;
// or take all promises back and say why.
func (n *Node) form(firstToken uint64, grace *time.Duration) (ClusterID, error) {
	if !n.forming.TryLock() {
		return ClusterID{}, errForming
	}
	defer n.forming.Unlock()
	return n.coordinate(firstToken, grace)
}

var errForming = errors.New("this node is forming a cluster at this moment")

// coordinate is form; n.forming is held.
func (n *Node) coordinate(firstToken uint64, grace *time.Duration) (ClusterID, error) {
	hellos, stranger := n.helloAll(askTimeout)
	n.mu.Lock()
	p, err := n.formation.plan(hellos, firstToken, grace)
	n.mu.Unlock()
	if err != nil {
		return ClusterID{}, orStranger(err, stranger)
	}
	replies, _ := n.askAll(&question{Op: opPromise, Promise: p}, askTimeout)
	err = n.promises(p, replies)
	if err == nil {
		if err = n.begin(p, hellos); err == nil {
			return p.Cluster, nil
		}
	}
	n.askAll(&question{Op: opWithdraw, Cluster: p.Cluster}, askTimeout)
	return ClusterID{}, err
}

// orStranger is the better reason of the two where a member did not answer.
func orStranger(err, stranger error) error {
	if errors.Is(err, errSilent) && stranger != nil {
		return stranger
	}
	return err
}

func (n *Node) promises(p *promise, replies []*reply) error {
	for slot, r := range replies {
		switch {
		case r == nil:
			return fmt.Errorf("%s did not answer when asked for its promise: try again; if it says that it has promised "+
				"another cluster, clear that with `ticketing init --abandon`", p.Members[slot])
		case r.Error != "":
			return fmt.Errorf("%s refused to promise: %s", p.Members[slot], r.Error)
		}
	}
	return nil
}

func (n *Node) begin(p *promise, hellos []*hello) error {
	var members []member
	for slot, client := range p.Members {
		peer, err := PeerAddress(client, n.cfg.PeerPortOffset)
		if err != nil {
			return err
		}
		members = append(members, member{slot, client, peer, p.Incs[slot]})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.formation.begin(p.Cluster); err != nil {
		return err
	}
	return n.enter(members)
}

// abandon clears the promises of all members, if all answer and none is part of a cluster.
func (n *Node) abandon() error {
	hellos, stranger := n.helloAll(askTimeout)
	for slot, h := range hellos {
		switch {
		case h == nil:
			return orStranger(fmt.Errorf("%s %w: promises are cleared only when all members say that they are part of no "+
				"cluster", n.cfg.Members[slot], errSilent), stranger)
		case h.Formed:
			return fmt.Errorf("%s is part of cluster %s: nothing to abandon; the others join it by themselves",
				n.cfg.Members[slot], h.Cluster)
		}
	}
	replies, _ := n.askAll(&question{Op: opWithdraw}, askTimeout)
	for slot, r := range replies {
		if r == nil {
			return fmt.Errorf("%s did not answer: ask again", n.cfg.Members[slot])
		}
		if r.Error != "" {
			return fmt.Errorf("%s: %s", n.cfg.Members[slot], r.Error)
		}
	}
	return nil
}

// formByItself is FORM=auto on slot 0: promises to an earlier life of this slot, or to an earlier attempt of this one,
// which will begin nothing any more, are cleared, and a cluster is formed if all members are there and none is part of
// one.
func (n *Node) formByItself(hellos []*hello) error {
	if !n.forming.TryLock() {
		return errForming
	}
	defer n.forming.Unlock()
	n.mu.Lock()
	own := n.formation.promised
	slot := n.formation.slot
	n.mu.Unlock()
	if own != nil && own.By == slot {
		n.askAll(&question{Op: opWithdraw, Cluster: own.Cluster}, askTimeout)
		return errNotAll // at the next try
	}
	for i, h := range hellos {
		if h == nil || h.Formed {
			return errNotAll
		}
		if own == nil && h.Promised && h.By == slot {
			peer, _ := PeerAddress(n.cfg.Members[i], n.cfg.PeerPortOffset) // validated
			if _, err := n.ask(peer, h.Inc, &question{Op: opWithdraw, Cluster: h.Cluster}, askTimeout); err != nil {
				return err
			}
		}
	}
	_, err := n.coordinate(0, nil)
	return err
}

var errNotAll = errors.New("raftglue: not all members are there, or one is part of a cluster")
