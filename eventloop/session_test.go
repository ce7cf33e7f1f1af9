package eventloop

import (
	"encoding/base64"
	"testing"
)

func b64(s string) ([]byte, error) { return base64.RawURLEncoding.DecodeString(s) }

func TestOneRoundTrip(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	c.send(acquire(7, "k"))
	token := c.granted(7, "k")
	c.send(release(token, "k"))
	c.wantFrame(string(release(token, "k")[:10]))
	t.Log(r.e.Stats())
}
