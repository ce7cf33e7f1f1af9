package raftglue

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	handshakeMagic = "TKP1"
	nonceBytes     = 16
	macBytes       = sha256.Size

	kindRaft = 'R' // Raft RPC until one side closes
	kindAsk  = 'A' // one question, one answer

	prefaceFixed = 1 + 16 + 16 + 16 + 8 + 8 + 1 + 2
	verdictBytes = 1 + 16 + 8 + 8
)

// start tells the starts of one incarnation apart. Only a data directory keeps an incarnation beyond a start; its count
// rises with each, and boot is drawn anew, so that a directory restored from a backup is noticed.
type start struct {
	Count uint64
	Boot  uint64
}

// preface is what the dialer says about itself once both sides have proved that they know the peer token.
type preface struct {
	kind      byte
	cluster   ClusterID   // 0 where the dialer is in none, or asks
	meant     Incarnation // 0: whoever is there (kindAsk only)
	own       Incarnation // 0: the command line
	start     start
	slot      int // -1: none
	addresses string
}

// verdict is the acceptor's answer to a preface.
type verdict struct {
	code  verdictCode
	own   Incarnation
	start start
}

type verdictCode byte

const (
	welcome verdictCode = iota + 1
	otherCluster
	otherIncarnation
	startsFell
	tooMany
)

// Errors of a peer connection, for errors.Is.
var (
	ErrPeerToken        = errors.New("the peer token is wrong, or the other side is no Ticketing peer")
	ErrOtherCluster     = errors.New("the node at that address is not in this cluster")
	ErrOtherIncarnation = errors.New("the node at that address has started anew")
	ErrStartsFell       = errors.New("the start count fell: a data directory was restored from a backup and has forgotten " +
		"votes; empty the directory, and the node comes back as a new member")
	errTooMany = errors.New("the node has too many peer connections")
)

func (c verdictCode) err() error {
	switch c {
	case welcome:
		return nil
	case otherCluster:
		return ErrOtherCluster
	case otherIncarnation:
		return ErrOtherIncarnation
	case startsFell:
		return ErrStartsFell
	case tooMany:
		return errTooMany
	}
	return ErrPeerToken
}

func appendStart(b []byte, s start) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, s.Count), s.Boot)
}

func (p *preface) append(b []byte) []byte {
	b = append(b, p.kind)
	b = append(b, p.cluster[:]...)
	b = append(b, p.meant[:]...)
	b = append(b, p.own[:]...)
	b = appendStart(b, p.start)
	b = append(b, byte(p.slot))
	b = binary.BigEndian.AppendUint16(b, uint16(len(p.addresses)))
	return append(b, p.addresses...)
}

var errBadPreface = errors.New("raftglue: malformed preface")

// readPreface returns the preface and the bytes it came in, which the dialer's proof covers.
func readPreface(r io.Reader) (p preface, raw []byte, err error) {
	raw = make([]byte, prefaceFixed, prefaceFixed+64)
	if _, err := io.ReadFull(r, raw); err != nil {
		return p, nil, err
	}
	p.kind = raw[0]
	copy(p.cluster[:], raw[1:])
	copy(p.meant[:], raw[17:])
	copy(p.own[:], raw[33:])
	p.start = start{binary.BigEndian.Uint64(raw[49:]), binary.BigEndian.Uint64(raw[57:])}
	p.slot = int(int8(raw[65]))
	n := int(binary.BigEndian.Uint16(raw[66:]))
	if n > maxAddressesBytes || p.kind != kindRaft && p.kind != kindAsk {
		return p, nil, errBadPreface
	}
	raw = append(raw, make([]byte, n)...)
	if _, err := io.ReadFull(r, raw[prefaceFixed:]); err != nil {
		return p, nil, err
	}
	p.addresses = string(raw[prefaceFixed:])
	return p, raw, nil
}

// proof is HMAC-SHA256 under the peer token. The role label makes what one side says worthless as what the other says.
func proof(token []byte, role string, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, token)
	m.Write([]byte("ticketing peer " + role + "\x00"))
	for _, p := range parts {
		m.Write(p)
	}
	return m.Sum(nil)
}

// openPeer is the dialer's side of the handshake. On success no byte beyond it has been read, and no deadline is set.
func openPeer(c net.Conn, token []byte, p preface, timeout time.Duration) (v verdict, err error) {
	c.SetDeadline(time.Now().Add(min(timeout, handshakeTimeout)))
	var mine [nonceBytes]byte
	rand.Read(mine[:])
	if _, err := c.Write(append([]byte(handshakeMagic), mine[:]...)); err != nil {
		return v, err
	}
	var challenge [nonceBytes + macBytes]byte
	if _, err := io.ReadFull(c, challenge[:]); err != nil {
		return v, fmt.Errorf("%w (%w)", ErrPeerToken, err)
	}
	theirs := challenge[:nonceBytes]
	if !hmac.Equal(challenge[nonceBytes:], proof(token, "acceptor", mine[:], theirs)) {
		return v, ErrPeerToken
	}
	raw := p.append(nil)
	if _, err := c.Write(append(raw, proof(token, "dialer", mine[:], theirs, raw)...)); err != nil {
		return v, err
	}
	var answer [verdictBytes + macBytes]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return v, fmt.Errorf("%w (%w)", ErrPeerToken, err)
	}
	body := answer[:verdictBytes]
	if !hmac.Equal(answer[verdictBytes:], proof(token, "verdict", mine[:], theirs, body)) {
		return v, ErrPeerToken
	}
	v.code = verdictCode(body[0])
	copy(v.own[:], body[1:])
	v.start = start{binary.BigEndian.Uint64(body[17:]), binary.BigEndian.Uint64(body[25:])}
	if err := v.code.err(); err != nil {
		return v, err
	}
	if p.meant != (Incarnation{}) && v.own != p.meant {
		return v, ErrOtherIncarnation
	}
	c.SetDeadline(time.Time{})
	return v, nil
}

// acceptPeer is the acceptor's side: judge looks at the preface of a dialer that knows the token. The connection may be
// used only if the error is nil; no deadline is set then.
func acceptPeer(c net.Conn, token []byte, deadline time.Time, judge func(*preface) verdict) (p preface, err error) {
	c.SetDeadline(deadline)
	var hello [len(handshakeMagic) + nonceBytes]byte
	if _, err := io.ReadFull(c, hello[:]); err != nil {
		return p, err
	}
	if string(hello[:len(handshakeMagic)]) != handshakeMagic {
		return p, ErrPeerToken
	}
	theirs := hello[len(handshakeMagic):]
	var mine [nonceBytes]byte
	rand.Read(mine[:])
	if _, err := c.Write(append(mine[:], proof(token, "acceptor", theirs, mine[:])...)); err != nil {
		return p, err
	}
	p, raw, err := readPreface(c)
	if err != nil {
		return p, err
	}
	var sum [macBytes]byte
	if _, err := io.ReadFull(c, sum[:]); err != nil {
		return p, err
	}
	if !hmac.Equal(sum[:], proof(token, "dialer", theirs, mine[:], raw)) {
		return p, ErrPeerToken
	}
	v := judge(&p)
	body := append([]byte{byte(v.code)}, v.own[:]...)
	body = appendStart(body, v.start)
	if _, err := c.Write(append(body, proof(token, "verdict", theirs, mine[:], body)...)); err != nil {
		return p, err
	}
	if err := v.code.err(); err != nil {
		return p, err
	}
	c.SetDeadline(time.Time{})
	return p, nil
}
