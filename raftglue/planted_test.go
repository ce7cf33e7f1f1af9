//go:build planted

package raftglue

import "testing"

// TestPlantedFaultIsCaught plants the fault as the daemon does, and wants the scenario of an empty process to notice it:
//
//	go test -tags planted -run Planted ./raftglue
func TestPlantedFaultIsCaught(t *testing.T) {
	if Plant("no such fault") || !Plant(EmptyVote) {
		t.Fatal("faults are not known by their names")
	}
	defer func() { plantedFault = "" }()
	if !amnesia(t, nil) {
		t.Fatal("no two leaders: the fault does not happen")
	}
}
