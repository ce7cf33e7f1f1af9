package main

import (
	"math/rand/v2"
	"testing"

	"github.com/ticketing-go/ticketing/bench/drill/fleet"
)

// Every shape cuts what its name says, and nobody who is called alone can have a majority.
func TestCuts(t *testing.T) {
	for _, n := range []int{3, 5} {
		f, err := fleet.New(fleet.Options{Nodes: n, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(40) {
			d := &drill{settings: &settings{nodes: n}, fleet: f, rnd: rand.New(rand.NewPCG(seed, 0))}
			for _, shape := range shapes {
				pairs, alone, err := d.cuts(shape, int(seed)%n)
				if err != nil || len(pairs) == 0 {
					t.Fatalf("%s of %d: %v, %v", shape, n, pairs, err)
				}
				cut := map[[2]int]bool{}
				for _, p := range pairs {
					if p[0] == p[1] || cut[p] {
						t.Errorf("%s of %d: %v is cut twice, or from itself", shape, n, p)
					}
					cut[p] = true
				}
				for _, a := range alone {
					both := 1 // itself, and those with whom it can talk both ways
					for b := range n {
						if b != a && !cut[[2]int{a, b}] && !cut[[2]int{b, a}] {
							both++
						}
					}
					if both > n/2 {
						t.Errorf("%s of %d, leader %d: slot %d still talks to %d of %d", shape, n, int(seed)%n, a, both, n)
					}
				}
			}
		}
	}
	if _, _, err := (&drill{settings: &settings{nodes: 3}, rnd: rand.New(rand.NewPCG(1, 1)),
		fleet: &fleet.Fleet{Nodes: []*fleet.Node{{}, {}, {}}}}).cuts("star", 0); err == nil {
		t.Error("shape star was taken")
	}
}
