package frames

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"time"
)

// Conn is one blocking connection of a drill. One goroutine at a time uses it.
type Conn struct {
	net.Conn
	reader *bufio.Reader
}

// Dial connects to addr from the address from (empty: the system chooses) within timeout, and does nothing else.
func Dial(addr, from string, timeout time.Duration) (*Conn, error) {
	dialer := net.Dialer{Timeout: timeout, KeepAlive: -1}
	if from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	c, err := dialer.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: c, reader: bufio.NewReaderSize(c, 512)}, nil
}

// Open dials and authenticates within timeout. A right answer is not acknowledged on this wire: a server that refuses
// says so in its first reply.
func Open(addr, from string, token []byte, timeout time.Duration) (*Conn, error) {
	c, err := Dial(addr, from, timeout)
	if err != nil {
		return nil, err
	}
	answer, err := c.Answer(nil, token, timeout)
	if err == nil {
		_, err = c.Write(answer)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Answer reads the challenge within timeout and appends the answer for token to dst, without sending it.
func (c *Conn) Answer(dst, token []byte, timeout time.Duration) ([]byte, error) {
	c.SetReadDeadline(time.Now().Add(timeout))
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return dst, fmt.Errorf("challenge: %w", err)
	}
	return AppendAnswer(dst, line[:len(line)-1], token)
}

// Next reads the next reply within timeout, keep-alives left out. Text is valid until the next call.
func (c *Conn) Next(timeout time.Duration) (Reply, error) {
	c.SetReadDeadline(time.Now().Add(timeout))
	var r Reply
	for {
		buffered, _ := c.reader.Peek(c.reader.Buffered())
		n, err := Decode(buffered, &r)
		if err != nil {
			return r, err
		}
		if n == 0 {
			if _, err := c.reader.Peek(len(buffered) + 1); err != nil {
				return r, err
			}
			continue
		}
		c.reader.Discard(n)
		if r.Op != KeepAlive {
			return r, nil
		}
	}
}

// Reset closes the connection by RST.
func (c *Conn) Reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// ErrAnswer is a reply other than the one that was due.
var ErrAnswer = errors.New("frames: unexpected reply")

// AcquireKey acquires key without queueing and returns the fencing token. lease is in seconds.
func (c *Conn) AcquireKey(key []byte, lease uint8, timeout time.Duration) (uint64, error) {
	if _, err := c.Write(AppendAcquire(nil, 0, lease, 1, key)); err != nil {
		return 0, err
	}
	r, err := c.Next(timeout)
	if err != nil {
		return 0, err
	}
	if r.Op != Granted || string(r.Text) != string(key) {
		return 0, fmt.Errorf("%w: %c %q to an acquire of %q", ErrAnswer, r.Op, r.Text, key)
	}
	return r.Token, nil
}

// ReleaseKey releases key and waits for the confirmation.
func (c *Conn) ReleaseKey(key []byte, token uint64, timeout time.Duration) error {
	if _, err := c.Write(AppendRelease(nil, token, key)); err != nil {
		return err
	}
	r, err := c.Next(timeout)
	if err != nil {
		return err
	}
	if r.Op != Released || r.Token != token || string(r.Text) != string(key) {
		return fmt.Errorf("%w: %c %q to a release of %q", ErrAnswer, r.Op, r.Text, key)
	}
	return nil
}
