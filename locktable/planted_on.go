//go:build planted

package locktable

import "fmt"

const planting = true

var plantedFault Fault

// Plant chooses the fault of a build with the tag planted, by its name; none if it is empty. Call it before New.
func Plant(name string) error {
	for f, n := range faultNames {
		if n == name {
			plantedFault = Fault(f)
			return nil
		}
	}
	return fmt.Errorf("locktable: no fault %q; there are %q", name, faultNames)
}

// planted says whether fault f happens now: once every few dozen opportunities, and the same on every node, since n is
// of the replicated part or the fault is of the stint.
func planted(f Fault, n uint64) bool {
	return plantedFault == f && n%faultEvery == faultEvery-1
}
