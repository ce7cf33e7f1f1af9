// Package raftglue makes three or five processes one replicated log. It decides what a Raft entry is, when a record is
// committed, who leads, who is a member and under which identity, how a cluster is formed, and how peers prove who they
// are to each other (CLUSTER.md). It refuses to know clients and wire frames, and what a record says: records are bytes
// made by package locktable. It is the only importer of hashicorp/raft.
//
// The server's apply goroutine calls Node.Propose, HeardMajority and the small accessors; none of them blocks. Raft's
// own goroutines call the Machine, which hands the work to the apply goroutine and waits for it.
//
// # Identity
//
// A process without a data directory has forgotten its votes when it starts again, so it must never be taken for who it
// was: Raft's messages name no target, and an empty process on the old address would vote as the dead voter. Every such
// start makes a fresh incarnation (128 random bits). The Raft id is "slot@client address#incarnation", the Raft address
// "peer host:port#incarnation", so that Raft's own configuration is the table of members; and every peer connection
// opens with {cluster id, incarnation meant, own incarnation}, which the acceptor compares with what it is.
//
// # A peer connection
//
//	dialer                                                                acceptor
//	  TCP, then TLS where it is configured
//	  "TKP1" nonce(16)                                                ->
//	                               <-  nonce(16) HMAC("acceptor", both nonces)
//	  preface HMAC("dialer", both nonces, preface)                    ->
//	                               <-  verdict HMAC("verdict", both nonces, verdict)
//	  Raft RPC, or one question and its answer (rpc.go)
//
// # Goroutines
//
// Node.Stop ends them all: the accept loop and a goroutine for each accepted connection (port.go), the role watcher and
// the futures reader (consensus.go), the gate (gate.go), the joiner (join.go), the compactor (compact.go) and, with a
// data directory, the disk watch (durable.go). Raft adds its own.
package raftglue
