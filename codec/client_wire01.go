package codec

import "encoding/binary"

func (wire01) AppendAcquire(dst []byte, _ uint64, wait, lease uint16, key []byte) []byte {
	dst = binary.BigEndian.AppendUint16(append(dst, 'A'), wait)
	return appendKey(binary.BigEndian.AppendUint16(dst, lease), key)
}

func (wire01) AppendRelease(dst []byte, _, _ uint64, key []byte) []byte {
	return appendKey(append(dst, 'R'), key)
}

func (w wire01) AppendRequest(dst []byte, r *Request) []byte {
	switch r.Op {
	case Acquire:
		return w.AppendAcquire(dst, 0, waitSeconds16(r.Wait), wholeSeconds(r.Lease, 1<<16-1), r.Key)
	case Release:
		return w.AppendRelease(dst, 0, 0, r.Key)
	case KeepAlive:
		return append(dst, lf)
	}
	return dst
}

func (wire01) DecodeReply(buf []byte, r *Reply) (n int, err error) {
	if len(buf) == 0 {
		return 0, nil
	}
	header, kind := opHeader, TimedOut
	switch buf[0] {
	case 'A':
		header, kind = tokenHeader, Granted
	case 'T':
	case 'R':
		kind = Released
	case 'N':
		kind = NotHeld
	default:
		return decodeBareReply(buf, r, func(addr string) *Leader { return &Leader{Addr01: addr} })
	}
	end, err := textEnd(buf, header)
	if end == 0 {
		return 0, err
	}
	key := buf[header:end:end]
	if !validKey(key) {
		return 0, ErrBadKey
	}
	*r = Reply{Kind: kind, Key: key}
	if kind == Granted {
		if r.Token = binary.BigEndian.Uint64(buf[1:]); r.Token == 0 {
			return 0, ErrBadRequest
		}
	}
	return end + 1, nil
}
