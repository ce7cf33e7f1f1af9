//go:build !linux

package netlab

// relay needs TUN devices in namespaces, which only Linux has.
type relay struct{}

func startRelay(*Lab, map[string]string, Link) (*relay, error) { return nil, ErrUnable }

func (*relay) close() {}
