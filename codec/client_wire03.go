package codec

import "encoding/binary"

func (wire03) AppendAcquire(dst []byte, id uint64, wait, lease uint16, key []byte) []byte {
	dst = binary.BigEndian.AppendUint16(append(dst, 'A'), wait)
	dst = binary.BigEndian.AppendUint16(dst, lease)
	return appendNumberKey(dst, id, key)
}

func (wire03) AppendRelease(dst []byte, _, token uint64, key []byte) []byte {
	return appendTokenRelease(dst, token, key)
}

func (w wire03) AppendRequest(dst []byte, r *Request) []byte {
	switch r.Op {
	case Acquire:
		return w.AppendAcquire(dst, r.ID, waitSeconds16(r.Wait), wholeSeconds(r.Lease, 1<<16-1), r.Key)
	case Release:
		return appendTokenRelease(dst, r.Token, r.Key)
	case KeepAlive:
		return append(dst, lf)
	}
	return dst
}

func (wire03) DecodeReply(buf []byte, r *Reply) (n int, err error) {
	return decodeOwnerReply(buf, r, func(addr string) *Leader { return &Leader{Addr03: addr} })
}
