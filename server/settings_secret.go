package server

import (
	"fmt"
	"io"
	"log/slog"
)

// hidden stands wherever a secret would be printed.
const hidden = "[secret]"

// Secret is a token that no way of printing shows: every verb of fmt, slog and encoding/json gives a fixed word. The zero
// value is no secret at all. It is a function because fmt calls no methods on unexported fields of other structs: there an
// address is printed, not the token.
type Secret struct{ reveal func() []byte }

// NewSecret makes a secret of text.
func NewSecret(text string) Secret {
	b := []byte(text)
	return Secret{func() []byte { return b }}
}

// Bytes are the secret itself. They must not be changed or printed.
func (s Secret) Bytes() []byte {
	if s.reveal == nil {
		return nil
	}
	return s.reveal()
}

// Empty says whether there is none.
func (s Secret) Empty() bool { return len(s.Bytes()) == 0 }

// Format writes the fixed word, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// LogValue is the fixed word.
func (s Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText is the fixed word.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }
