package raftglue

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// network is how a node reaches others: TCP, or the tests' network in memory, which can be cut.
type network interface {
	listen(address string) (net.Listener, error)
	dial(ctx context.Context, address string) (net.Conn, error)
}

// A peer that is gone without a FIN is noticed in about 15 s; its connections then no longer count.
var peerKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 5}

type tcpNetwork struct{}

func (tcpNetwork) listen(address string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: peerKeepAlive}
	return lc.Listen(context.Background(), "tcp", address)
}

func (tcpNetwork) dial(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: peerKeepAlive}
	return d.DialContext(ctx, "tcp", address)
}

// tlsDial wraps a dialed connection where TLS is configured. The name to verify is the host of the address unless the
// configuration names one.
func tlsDial(ctx context.Context, c net.Conn, cfg *tls.Config, address string) (net.Conn, error) {
	if cfg == nil {
		return c, nil
	}
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	tc := tls.Client(c, cfg)
	return tc, tc.HandshakeContext(ctx)
}

// call opens a peer connection for one side that is not a node (the command line) or is.
type caller struct {
	net   network
	token []byte
	tls   *tls.Config
}

func (cl caller) open(address string, p preface, timeout time.Duration) (net.Conn, verdict, error) {
	timeout = min(timeout, handshakeTimeout)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	raw, err := cl.net.dial(ctx, address)
	if err != nil {
		return nil, verdict{}, err
	}
	c, err := tlsDial(ctx, raw, cl.tls, address)
	if err != nil {
		raw.Close()
		return nil, verdict{}, err
	}
	v, err := openPeer(c, cl.token, p, timeout)
	if err != nil {
		c.Close()
		return nil, v, err
	}
	return c, v, nil
}
