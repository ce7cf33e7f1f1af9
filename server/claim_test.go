package server

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
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
	// The claim alone must not keep the process's own listener out.
	ln, err := net.Listen("tcp", first.Addr)
	if err != nil {
		t.Fatalf("own listener: %v", err)
	}
	ln.Close()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Claim(first.Addr)
	if err != nil {
		t.Fatalf("claim after the first was given up: %v", err)
	}
	again.Close()
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
