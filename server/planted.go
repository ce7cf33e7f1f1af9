//go:build planted

package server

import (
	"fmt"
	"os"

	"github.com/ticketing-go/ticketing/locktable"
	"github.com/ticketing-go/ticketing/raftglue"
)

// A build with the tag planted takes its fault from TICKETING_PLANTED.
func init() {
	name := os.Getenv("TICKETING_PLANTED")
	if raftglue.Plant(name) {
		return
	}
	if err := locktable.Plant(name); err != nil {
		panic(fmt.Errorf("%w, and %q of raftglue", err, raftglue.EmptyVote))
	}
}
