package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ticketing-go/ticketing/raftglue"
)

// atPeer does something at the peer given, or at the first member of CLUSTER that answers.
func (w *world) atPeer(peer string, do func(raftglue.Admin) error) error {
	a, err := w.admin()
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	peers := []string{peer}
	if peer == "" {
		if peers, err = w.peers(); err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
	}
	for _, p := range peers {
		a.Peer = p
		err = do(a)
		var no *raftglue.Refused
		if err == nil || errors.As(err, &no) {
			return err
		}
		err = fmt.Errorf("%s: %w", p, err)
	}
	return err
}

func (w *world) peers() (out []string, err error) {
	offset := 1000
	if s := w.setting("PEER_PORT_OFFSET"); s != "" {
		if offset, err = strconv.Atoi(s); err != nil {
			return nil, fmt.Errorf("PEER_PORT_OFFSET: %q is no number", s)
		}
	}
	list := w.setting("CLUSTER")
	if list == "" {
		return nil, errors.New("which node? Give --peer ADDR (its peer port), or CLUSTER in the environment")
	}
	for m := range strings.SplitSeq(list, ",") {
		p, err := raftglue.PeerAddress(strings.TrimSpace(m), offset)
		if err != nil {
			return nil, fmt.Errorf("CLUSTER: %w", err)
		}
		out = append(out, p)
	}
	return out, nil
}

// admin reads who may ask from the environment. The token has no flag: command lines are seen by all.
func (w *world) admin() (a raftglue.Admin, err error) {
	a.Token = []byte(w.setting("PEER_TOKEN"))
	if file := w.setting("PEER_TOKEN_FILE"); file != "" {
		if len(a.Token) > 0 {
			return a, errors.New("PEER_TOKEN and PEER_TOKEN_FILE are both given")
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return a, fmt.Errorf("PEER_TOKEN_FILE: %w", err)
		}
		a.Token = []byte(strings.TrimSpace(string(b)))
	}
	cert, key, ca := w.setting("PEER_TLS_CERT"), w.setting("PEER_TLS_KEY"), w.setting("PEER_TLS_CA")
	if cert == "" && key == "" && ca == "" {
		return a, nil
	}
	a.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return a, fmt.Errorf("PEER_TLS_CERT, PEER_TLS_KEY: %w", err)
		}
		a.TLS.Certificates = []tls.Certificate{pair}
	}
	if ca != "" {
		b, err := os.ReadFile(ca)
		if err != nil {
			return a, fmt.Errorf("PEER_TLS_CA: %w", err)
		}
		a.TLS.RootCAs = x509.NewCertPool()
		if !a.TLS.RootCAs.AppendCertsFromPEM(b) {
			return a, fmt.Errorf("PEER_TLS_CA: %s holds no certificate", ca)
		}
	}
	return a, nil
}
