package raftglue

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/hashicorp/raft"
)

// Incarnation names one life of a member's memory: a process start, or with a data directory all starts from it.
type Incarnation [16]byte

// ClusterID names a fencing domain; made when a cluster is formed.
type ClusterID [16]byte

// String is the incarnation in hex.
func (i Incarnation) String() string { return hex.EncodeToString(i[:]) }

// String is the cluster id in hex.
func (c ClusterID) String() string { return hex.EncodeToString(c[:]) }

// MarshalText is the incarnation in hex.
func (i Incarnation) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// MarshalText is the cluster id in hex.
func (c ClusterID) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads 32 hex digits.
func (i *Incarnation) UnmarshalText(b []byte) error { return unhex(i[:], b) }

// UnmarshalText reads 32 hex digits.
func (c *ClusterID) UnmarshalText(b []byte) error { return unhex(c[:], b) }

func unhex(dst, b []byte) error {
	if len(b) != 2*len(dst) {
		return fmt.Errorf("raftglue: want %d hex digits", 2*len(dst))
	}
	_, err := hex.Decode(dst, b)
	return err
}

func newIncarnation() (i Incarnation) { rand.Read(i[:]); return i }
func newClusterID() (c ClusterID)     { rand.Read(c[:]); return c }

// member is one seat of the member table, as Raft's configuration carries it.
type member struct {
	Slot   int
	Client string // client address, host:port
	Peer   string // peer address, host:port
	Inc    Incarnation
}

func (m member) id() raft.ServerID {
	return raft.ServerID(fmt.Sprintf("%d@%s#%s", m.Slot, m.Client, m.Inc))
}

func (m member) address() raft.ServerAddress { return raftAddress(m.Peer, m.Inc) }

func raftAddress(peer string, inc Incarnation) raft.ServerAddress {
	return raft.ServerAddress(peer + "#" + inc.String())
}

var errBadRaftID = errors.New("raftglue: malformed Raft id or address")

func parseRaftAddress(a raft.ServerAddress) (peer string, inc Incarnation, err error) {
	peer, digits, ok := strings.Cut(string(a), "#")
	if !ok || inc.UnmarshalText([]byte(digits)) != nil {
		return "", inc, errBadRaftID
	}
	return peer, inc, nil
}

func parseMember(s raft.Server) (m member, err error) {
	slot, rest, ok := strings.Cut(string(s.ID), "@")
	client, digits, ok2 := strings.Cut(rest, "#")
	n, err := strconv.Atoi(slot)
	if !ok || !ok2 || err != nil || n < 0 || m.Inc.UnmarshalText([]byte(digits)) != nil {
		return m, errBadRaftID
	}
	m.Slot, m.Client = n, client
	m.Peer, _, err = parseRaftAddress(s.Address)
	return m, err
}

// PeerAddress is where a member with this client address takes peers: the same host, the port plus offset.
func PeerAddress(client string, offset int) (string, error) {
	host, port, err := net.SplitHostPort(client)
	if err != nil {
		return "", fmt.Errorf("member %q: want host:port", client)
	}
	p, err := strconv.Atoi(port)
	if err != nil || p < 1 || p+offset > 65535 || p+offset < 1 {
		return "", fmt.Errorf("member %q: peer port %s%+d is outside 1..65535", client, port, offset)
	}
	return net.JoinHostPort(host, strconv.Itoa(p+offset)), nil
}

func majority(size int) int { return size/2 + 1 }
