//go:build !planted

package raftglue

func (*Config) plant() {}
