package raftglue

import (
	"reflect"

	"github.com/hashicorp/raft"
)

// await is f.Error(), except that it ends when the node has stopped. hashicorp/raft resolves no future whose entry was
// committed and still waits for the FSM goroutine when that one ends, nor one that waits for the leader's loop: Error
// would never return. The futures have a channel for that which Raft itself sets in some; it is read in Error only, so
// that setting it here races with nobody.
func (n *Node) await(f raft.Future) error {
	if v := reflect.ValueOf(f); v.Kind() == reflect.Pointer {
		if down := v.Elem().FieldByName("ShutdownCh"); down.IsValid() && down.IsNil() {
			down.Set(reflect.ValueOf(n.stop))
		}
	}
	return f.Error()
}
