//go:build planted

package server

import (
	"os"

	"github.com/ticketing-go/ticketing/locktable"
)

// A build with the tag planted takes its fault from TICKETING_PLANTED.
func init() {
	if err := locktable.Plant(os.Getenv("TICKETING_PLANTED")); err != nil {
		panic(err)
	}
}
