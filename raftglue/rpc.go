package raftglue

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"time"
)

// question is what one peer, or the command line, asks another over a connection of kindAsk: four bytes of length, then
// JSON; the answer alike. Op says which fields count.
type question struct {
	Op         string      `json:"op"`
	Promise    *promise    `json:"promise,omitempty"`
	Cluster    ClusterID   `json:"cluster"`
	Join       *member     `json:"join,omitempty"`
	Members    []string    `json:"members,omitempty"`
	Inc        Incarnation `json:"inc"`
	Slot       int         `json:"slot"`
	Address    string      `json:"address,omitempty"`
	FirstToken uint64      `json:"first_token,omitempty"`
	Grace      *uint64     `json:"grace_seconds,omitempty"` // nil: the default
}

const (
	opHello    = "hello"    // who are you
	opPromise  = "promise"  // promise this cluster
	opWithdraw = "withdraw" // that cluster (0: whichever) will not be formed
	opJoin     = "join"     // take me in; leader only
	opPing     = "ping"     // what have you applied
	opSettled  = "settled"  // up to which change of members has every live voter applied; leader only
	opIsMember = "is-member"
	opInit     = "init"
	opAbandon  = "abandon"
	opMembers  = "members"
	opReplace  = "replace"
	opRemove   = "remove"
)

// reply answers a question. Error is one line for a person; Retry says that the same question may have a better
// answer soon, Leader where it should be asked.
type reply struct {
	Error   string    `json:"error,omitempty"`
	Retry   bool      `json:"retry,omitempty"`
	Leader  string    `json:"leader,omitempty"` // peer address
	Hello   *hello    `json:"hello,omitempty"`
	Cluster ClusterID `json:"cluster"`
	Terms   Terms     `json:"terms"`
	Size    int       `json:"size,omitempty"`
	Applied uint64    `json:"applied,omitempty"`
	Settled uint64    `json:"settled,omitempty"`
	Yes     bool      `json:"yes,omitempty"`
	Status  *Status   `json:"status,omitempty"`
}

// hello is what a node says about itself.
type hello struct {
	Inc       Incarnation `json:"inc"`
	Slot      int         `json:"slot"`
	Self      string      `json:"self"`
	Members   []string    `json:"members"`
	MaxLease  uint64      `json:"max_lease_ns"`
	Formed    bool        `json:"formed"`
	Cluster   ClusterID   `json:"cluster"` // formed or promised
	Promised  bool        `json:"promised"`
	By        int         `json:"by"`     // slot of the coordinator promised to
	Leader    string      `json:"leader"` // peer address; empty: none known
	Durable   bool        `json:"durable"`
	HasLeader bool        `json:"has_leader"`
}

var errMessageSize = errors.New("raftglue: message between peers too large")

func writeMessage(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxMessageBytes {
		return errMessageSize
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	_, err = w.Write(append(b, body...))
	return err
}

func readMessage(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxMessageBytes {
		return errMessageSize
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

// Refused is a peer's answer that says no; the text is one line for a person.
type Refused struct {
	Text  string
	retry bool
}

func (e *Refused) Error() string { return e.Text }

// ask opens a connection, asks one question and returns the answer; an answer that says no comes as a *Refused beside
// it.
func (cl caller) ask(address string, p preface, q *question, timeout time.Duration) (*reply, error) {
	end := time.Now().Add(timeout)
	p.kind = kindAsk
	c, _, err := cl.open(address, p, timeout)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(end)
	if err := writeMessage(c, q); err != nil {
		return nil, err
	}
	var r reply
	if err := readMessage(c, &r); err != nil {
		return nil, err
	}
	if r.Error != "" {
		return &r, &Refused{r.Error, r.Retry}
	}
	return &r, nil
}

// serveAsk answers the one question of an accepted connection.
func serveAsk(c net.Conn, answer func(*question) *reply) {
	c.SetDeadline(time.Now().Add(askTimeout))
	var q question
	if readMessage(c, &q) != nil {
		return
	}
	r := answer(&q)
	c.SetDeadline(time.Now().Add(askTimeout))
	// Nobody is left to tell if the asker is gone.
	_ = writeMessage(c, r)
}
