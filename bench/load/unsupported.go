//go:build !linux

package load

import "time"

// Present is what stays on a server until it is closed.
type Present struct{}

// Close does nothing: nothing is ever present here.
func (*Present) Close() error { return nil }

// Run returns ErrUnsupported.
func (OwnKeys) Run(Target) (Result, error) { return Result{}, ErrUnsupported }

// Run returns ErrUnsupported.
func (HotKey) Run(Target) (Result, error) { return Result{}, ErrUnsupported }

// Hold returns ErrUnsupported.
func (Ballast) Hold(Target) (*Present, error) { return nil, ErrUnsupported }

// Connect returns ErrUnsupported.
func Connect(Target, int) (*Present, error) { return nil, ErrUnsupported }

// CPUTime returns ErrUnsupported.
func CPUTime(int) (time.Duration, error) { return 0, ErrUnsupported }
