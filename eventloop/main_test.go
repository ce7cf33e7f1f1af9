package eventloop

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain runs children of tests, and fails if a goroutine of ours or of a gnet engine has outlived all tests.
func TestMain(m *testing.M) {
	if child := children[os.Getenv(childVariable)]; child != nil {
		child()
		os.Exit(0)
	}
	code := m.Run()
	if left := leaked(); code == 0 && left != "" {
		fmt.Println("goroutines left behind:\n" + left)
		code = 1
	}
	os.Exit(code)
}

// childVariable names, in the environment of a copy of the test binary, what it is to do instead of tests.
const childVariable = "EVENTLOOP_TEST_CHILD"

var children = map[string]func(){}

func leaked() string {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(5 * time.Second); ; <-tick.C {
		var left []string
		buf := make([]byte, 4<<20)
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			ours := strings.Contains(g, "ticketing/eventloop.") || strings.Contains(g, "gnet/v2.")
			if ours && !strings.Contains(g, "TestMain") {
				left = append(left, g)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
	}
}
