package codec

// Reason is why a frame or a request was refused: the eight reasons of PROTOCOL.md section 2 and the codes of WIRES.md
// section 3.3.
type Reason uint8

const (
	NoReason Reason = iota
	BadOp
	BadRequest
	BadLease
	BadKey
	LineTooLong
	AuthFailed
	NotServing // not_active
	NoLeader
	BadKeySet     // wire 3
	GroupMismatch // wire 3
	BadToken      // wire 3
)

var reasonText = [...]string{
	NoReason: "none", BadOp: "bad_op", BadRequest: "bad_request", BadLease: "bad_lease", BadKey: "bad_key",
	LineTooLong: "line_too_long", AuthFailed: "auth_failed", NotServing: "not_active", NoLeader: "no_leader",
	BadKeySet: "bad_key_set", GroupMismatch: "group_mismatch", BadToken: "bad_token",
}

// String is the reason as the text wires write it.
func (r Reason) String() string { return reasonText[r] }

// FrameError is a frame that breaks the framing or a check that closes the connection. Values are shared: compare with
// errors.Is.
type FrameError struct{ Reason Reason }

func (e *FrameError) Error() string { return "codec: " + e.Reason.String() }

// One value a reason, so that decoding allocates nothing.
var (
	ErrBadOp       = &FrameError{BadOp}
	ErrBadRequest  = &FrameError{BadRequest}
	ErrBadLease    = &FrameError{BadLease}
	ErrBadKey      = &FrameError{BadKey}
	ErrLineTooLong = &FrameError{LineTooLong}
	ErrAuthFailed  = &FrameError{AuthFailed}
)
