package server

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const claimChild = "TICKETING_TEST_CLAIM"

// TestMain lets the test binary stand in for a second daemon: it claims an address, says so, and holds it until its
// standard input ends.
func TestMain(m *testing.M) {
	if addr := os.Getenv(claimChild); addr != "" {
		c, err := Claim(addr)
		if err != nil {
			os.Stdout.WriteString("refused: " + err.Error() + "\n")
			os.Exit(ExitCode(err))
		}
		os.Stdout.WriteString("claimed " + c.Addr + "\n")
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestClaimPicksAPort(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "localhost:0"} {
		c, err := Claim(addr)
		if err != nil {
			t.Fatal(err)
		}
		host, port, ok := splitAddress(c.Addr)
		if !ok || port == 0 || net.ParseIP(host) == nil {
			t.Errorf("Claim(%s) gives %q, want an IP address and the port chosen", addr, c.Addr)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestClaimIsForLife(t *testing.T) {
	first, err := Claim("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	var used *PortInUseError
	if _, err := Claim(first.Addr); !errors.As(err, &used) || ExitCode(err) != ExitFailure || !strings.Contains(err.Error(), first.Addr) {
		t.Fatalf("second claim: %v, want port in use", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	// With the port named, as a rule; above, the system chose it.
	again, err := Claim(first.Addr)
	if err != nil {
		t.Fatalf("claim after the first was given up: %v", err)
	}
	defer again.Close()
	if _, err := Claim(first.Addr); !errors.As(err, &used) {
		t.Errorf("second claim of a named port: %v, want port in use", err)
	}
	// A client that comes too early is refused, not accepted and reset.
	if c, err := net.Dial("tcp", first.Addr); err == nil {
		c.Close()
		t.Error("a claim accepts connections")
	}
	// The claim must not keep the process's own loops out.
	for range 2 {
		ln, err := (&net.ListenConfig{Control: reusePort}).Listen(t.Context(), "tcp", first.Addr)
		if err != nil {
			t.Fatalf("own listener: %v", err)
		}
		defer ln.Close()
		if c, err := net.Dial("tcp", first.Addr); err != nil {
			t.Errorf("own listener is not reached: %v", err)
		} else {
			c.Close()
		}
	}
}

// A claim keeps out claims of other names for the same port, before there is any listener.
func TestClaimsThatOverlap(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux keeps a port bound without listening; elsewhere the trial alone tells")
	}
	for _, c := range []struct {
		first, second string
		conflict      bool
	}{
		{"127.0.0.1", "0.0.0.0", true}, {"0.0.0.0", "127.0.0.1", true}, {"0.0.0.0", "0.0.0.0", true}, {"127.0.0.1", "", true},
		{"127.0.0.1", "127.0.0.2", false},
	} {
		probe, err := Claim("0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(probe.Addr)
		probe.Close()
		first, err := Claim(net.JoinHostPort(c.first, port))
		if err != nil {
			t.Fatal(err)
		}
		second, err := Claim(net.JoinHostPort(c.second, port))
		var used *PortInUseError
		if errors.As(err, &used) != c.conflict {
			t.Errorf("claims of %q and %q on one port: %v, want a conflict: %v", c.first, c.second, err, c.conflict)
		}
		if second != nil {
			second.Close()
		}
		first.Close()
	}
}

func reusePort(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
	return errors.Join(err, failed)
}

func TestClaimOfTwoProcesses(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), claimChild+"=127.0.0.1:0")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "claimed ")
	if err != nil || !ok {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	var used *PortInUseError
	if _, err := Claim(addr); !errors.As(err, &used) {
		t.Errorf("claim of %s, which another process has: %v, want port in use", addr, err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	c, err := Claim(addr)
	if err != nil {
		t.Fatalf("claim after the other process has ended: %v", err)
	}
	c.Close()
}

// A listener that knows nothing of claims is noticed, also where one of the two addresses means all interfaces.
func TestClaimNoticesForeignListeners(t *testing.T) {
	for _, c := range []struct{ listen, claim string }{
		{"127.0.0.1:0", "127.0.0.1"}, {"127.0.0.1:0", "0.0.0.0"}, {"0.0.0.0:0", "127.0.0.1"}, {"0.0.0.0:0", ""},
	} {
		ln, err := net.Listen("tcp4", c.listen)
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		var used *PortInUseError
		if got, err := Claim(net.JoinHostPort(c.claim, port)); !errors.As(err, &used) {
			t.Errorf("listener on %s, claim of %q: %v, %v; want port in use", c.listen, c.claim, got, err)
		}
		ln.Close()
	}
}

func TestClaimOfNoAddressOfOurs(t *testing.T) {
	_, err := Claim("192.0.2.1:5225")
	var used *PortInUseError
	if err == nil || errors.As(err, &used) {
		t.Errorf("claim of an address that this machine has not: %v, want an error that is not port in use", err)
	}
}
