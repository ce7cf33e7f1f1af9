package raftglue

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// transport is Raft's own network transport with a note of who acknowledged what, without the rule that a candidate must
// stand in the configuration of whom it asks, and with what keeps hashicorp/raft's shortcuts safe: see terms and
// AppendEntries. Every AppendEntries comes by here, since pipelining is off (one request at a time to a peer measured
// fastest).
type transport struct {
	*raft.NetworkTransport
	heard *heard
	back  *comeback
	terms *terms
}

// SetHeartbeatHandler is part of raft.Transport.
func (t *transport) SetHeartbeatHandler(take func(raft.RPC)) {
	t.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) { t.terms.heartbeat(rpc, take) })
}

var errDeposed = errors.New("raftglue: that leadership is over")

// AppendEntries is part of raft.Transport.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) error {
	// What still replicates for a leadership that is over may have read a log that its successor was changing. The term
	// rises before the log changes.
	if t.terms.now.Load() != args.Term {
		return errDeposed
	}
	// A follower commits as far as it is told and its log goes, though what lies behind these entries may be a dead
	// leader's. The commit index may have been read later than where these entries end.
	if end := args.PrevLogEntry + uint64(len(args.Entries)); args.LeaderCommitIndex > end {
		compared := *args
		compared.LeaderCommitIndex = end
		args = &compared
	}
	sent := time.Now()
	err := t.NetworkTransport.AppendEntries(id, target, args, resp)
	heartbeat := args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0 && len(args.Entries) == 0
	if err == nil {
		if resp.Term == args.Term {
			t.heard.acknowledged(id, args.Term, sent)
		}
		t.back.reached(id)
	} else if !heartbeat {
		t.back.wait(id)
	}
	return err
}

// RequestVote is part of raft.Transport. The candidate is not named: hashicorp/raft refuses one that is no voter in its own
// latest configuration, but a voter that missed the last change of members would then have no leader ever again, once the
// leader who made that change is dead. Raft itself asks a voter to look at terms and logs only, and each candidate counts
// the votes of its own configuration.
func (t *transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse) error {
	unnamed := *args
	unnamed.ID = nil
	return t.NetworkTransport.RequestVote(id, target, &unnamed, resp)
}

// RequestPreVote is part of raft.WithPreVote. Here the name of a voter is required; whoever refuses the candidate's is
// asked once more in its own, and then, since it may have missed that it became a voter itself, in those of the others:
// some voter is known to both. Each answer is about what remains: whether there is a leader, and whose log is longer.
func (t *transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse) error {
	voters, _ := t.heard.voters()
	names := []string{string(args.ID), string(id)}
	for _, v := range voters {
		if v != id {
			names = append(names, string(v))
		}
	}
	for _, name := range names {
		named := *args
		named.ID = []byte(name)
		*resp = raft.RequestPreVoteResponse{}
		err := t.NetworkTransport.RequestPreVote(id, target, &named, resp)
		if err != nil || resp.Granted || resp.Term > args.Term {
			return err
		}
	}
	return nil
}
