package codec

func (v1) AppendAcquire(dst []byte, id uint64, wait, lease uint16, key []byte) []byte {
	return appendNumberKey(append(dst, 'A', byte(wait), byte(lease)), id, key)
}

func (v1) AppendRelease(dst []byte, _, token uint64, key []byte) []byte {
	return appendTokenRelease(dst, token, key)
}

func (w v1) AppendRequest(dst []byte, r *Request) []byte {
	switch r.Op {
	case Acquire:
		return w.AppendAcquire(dst, r.ID, wholeSeconds(r.Wait, 255), wholeSeconds(r.Lease, maxLeaseSeconds8), r.Key)
	case Release:
		return appendTokenRelease(dst, r.Token, r.Key)
	case KeepAlive:
		return append(dst, lf)
	}
	return dst
}

func (v1) DecodeReply(buf []byte, r *Reply) (n int, err error) {
	return decodeOwnerReply(buf, r, func(addr string) *Leader { return &Leader{Addr: addr} })
}
