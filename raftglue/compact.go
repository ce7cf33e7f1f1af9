package raftglue

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// compactEvery is how often the log's size is looked at: at 400 MB/s it grows by 10 MiB meanwhile.
const compactEvery = 25 * time.Millisecond

// compact takes a snapshot whenever the log holds more than logBytesMax, and lets the log keep trailingBytes for those
// who lag; Node.Stop ends it.
func (n *Node) compact(c *consensus) {
	defer n.done.Done()
	tick := time.NewTicker(compactEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.stop:
			return
		}
		entries, bytes := c.stores.size()
		if bytes <= logBytesMax {
			continue
		}
		keep := min(max(trailingBytes/(bytes/entries), minTrailing), maxTrailing)
		rc := c.raft.ReloadableConfig()
		rc.TrailingLogs = uint64(keep)
		if err := c.raft.ReloadConfig(rc); err != nil {
			n.log.Warn("log compaction", "error", err)
			continue
		}
		err := n.await(c.raft.Snapshot())
		if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) && !errors.Is(err, raft.ErrRaftShutdown) {
			n.log.Warn("snapshot", "error", err)
		}
	}
}
