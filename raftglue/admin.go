package raftglue

import (
	"crypto/tls"
	"errors"
	"time"
)

// Admin asks nodes to form a cluster and to change its members, as the command line does: over the peer port, with the
// peer token. Its methods may be called by any goroutine.
type Admin struct {
	Peer  string // peer address, host:port
	Token []byte
	TLS   *tls.Config // nil: no TLS between peers

	net network // nil: TCP
}

// Formed says what forming a cluster fixed.
type Formed struct {
	Cluster ClusterID
	Terms   Terms
}

func (a Admin) ask(peer string, q *question, timeout time.Duration) (*reply, error) {
	if a.net == nil {
		a.net = tcpNetwork{}
	}
	return caller{a.net, a.Token, a.TLS}.ask(peer, preface{slot: -1}, q, timeout)
}

// Init has the node form a cluster of all members in its CLUSTER. firstToken 0 is 1; grace in seconds, nil: the longest
// lease that the members' listeners admit if a first token is given, else none.
func (a Admin) Init(firstToken uint64, grace *uint64) (Formed, error) {
	r, err := a.ask(a.Peer, &question{Op: opInit, FirstToken: firstToken, Grace: grace}, adminTimeout)
	if err != nil {
		return Formed{}, err
	}
	return Formed{r.Cluster, r.Terms}, nil
}

// Abandon has the node clear all members' promises, if none is part of a cluster.
func (a Admin) Abandon() error {
	_, err := a.ask(a.Peer, &question{Op: opAbandon}, adminTimeout)
	return err
}

// Members is what the leader, or where none is known the node, knows of the cluster.
func (a Admin) Members() (Status, error) {
	r, err := a.ask(a.Peer, &question{Op: opMembers}, askTimeout)
	if err != nil {
		return Status{}, err
	}
	if r.Leader != "" && r.Leader != a.Peer {
		if l, err := a.ask(r.Leader, &question{Op: opMembers}, askTimeout); err == nil {
			r = l
		}
	}
	if r.Status == nil {
		return Status{}, errNoStatus
	}
	return *r.Status, nil
}

var errNoStatus = errors.New("raftglue: the answer has no status")

// Replace gives a slot to the node with this client address, which must be running, and waits until it is a voter.
func (a Admin) Replace(slot int, address string) error {
	return a.atLeader(&question{Op: opReplace, Slot: slot, Address: address})
}

// Remove takes the member in a slot out of the cluster.
func (a Admin) Remove(slot int) error {
	return a.atLeader(&question{Op: opRemove, Slot: slot})
}

// atLeader asks whoever leads, and again for up to two adminTimeouts while the answer says that this may help.
func (a Admin) atLeader(q *question) error {
	peer := a.Peer
	for end := time.Now().Add(2 * adminTimeout); ; {
		r, err := a.ask(peer, q, adminTimeout)
		var no *Refused
		switch {
		case err == nil:
			return nil
		case errors.As(err, &no) && !no.retry, time.Now().After(end):
			return err
		case r != nil && r.Leader != "" && r.Leader != peer:
			peer = r.Leader
		default:
			peer = a.Peer
			<-time.After(200 * time.Millisecond)
		}
	}
}
