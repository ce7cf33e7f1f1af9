package eventloop

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
)

// nonces makes the nonces of one process: keyed permutations of a counter, so that none is ever given twice and none
// can be told from those before it. The key never leaves the process. Any goroutine may call it.
type nonces struct {
	count atomic.Uint64
	block cipher.Block
}

// processNonces is shared by all engines of the process: a nonce is unique in the life of a process.
var processNonces = newNonces()

func newNonces() *nonces {
	var key [32]byte
	rand.Read(key[:]) // never fails: the runtime ends the process instead
	b, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // 32 bytes are a valid key
	}
	return &nonces{block: b}
}

// feistelRounds of a pseudo-random function make a permutation that is pseudo-random too; four are enough in theory.
const feistelRounds = 8

// next returns the next nonce in both sizes. 48 bits repeat only after 2^48 connections.
func (n *nonces) next() (short [6]byte, long [16]byte) {
	c := n.count.Add(1)
	var in, out [16]byte
	left, right := uint32(c>>24)&0xffffff, uint32(c)&0xffffff
	for round := range feistelRounds {
		in = [16]byte{0: 1, 1: byte(round)}
		binary.BigEndian.PutUint32(in[4:], right)
		n.block.Encrypt(out[:], in[:])
		left, right = right, left^(binary.BigEndian.Uint32(out[:])>>8)
	}
	v := uint64(left)<<24 | uint64(right)
	for i := range short {
		short[i] = byte(v >> (40 - 8*i))
	}
	in = [16]byte{0: 2} // apart from the inputs of the rounds
	binary.BigEndian.PutUint64(in[8:], c)
	n.block.Encrypt(long[:], in[:])
	return short, long
}
