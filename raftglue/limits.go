package raftglue

import "time"

const (
	// handshakeTimeout bounds all of a peer connection's opening: TLS, challenge-response, preface (CLUSTER.md).
	handshakeTimeout = 5 * time.Second
	// maxHandshakes is the number of accepted connections that may be opening at once; one more is closed.
	maxHandshakes = 64
	// maxPeerConns is the number of accepted peer connections; one more is closed. Four peers use about four each.
	maxPeerConns = 256
	// maxMessageBytes bounds one question or answer between peers.
	maxMessageBytes = 64 << 10
	// maxAddressesBytes bounds Config.Addresses, which travels in every preface.
	maxAddressesBytes = 1024
	// askTimeout bounds one question to a peer and its answer where nothing shorter is given.
	askTimeout = 3 * time.Second
	// adminTimeout bounds a question of the command line that changes something, and its answer.
	adminTimeout = 30 * time.Second

	// maxUnresolved is the number of records that Raft may hold without having said what became of them; Propose refuses
	// beyond it. Below maxAppendEntries, so that Raft's queue never makes Propose wait.
	maxUnresolved    = 48
	maxAppendEntries = 64
	_                = uint(maxAppendEntries - maxUnresolved - 1)

	// logBytesMax is what the log may hold before a snapshot is taken, trailingBytes what it keeps after that for
	// followers that lag. Together with what arrives while a snapshot is made they stay below 64 MiB.
	logBytesMax   = 40 << 20
	trailingBytes = 16 << 20
	minTrailing   = 64
	maxTrailing   = 1 << 16
	// entryOverhead is what an entry costs in memory besides its data.
	entryOverhead = 160

	// caughtUpWithin is how long the last round of catching up of a learner may take (CLUSTER.md).
	caughtUpWithin = time.Second
	// maxWithdrawn is how many withdrawn cluster ids a node remembers, so that a late promise finds it withdrawn.
	maxWithdrawn = 64
)
