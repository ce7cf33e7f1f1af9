//go:build unix

package main

import "syscall"

// ownGroup keeps the terminal's signals from a child.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
