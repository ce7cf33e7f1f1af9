//go:build !linux

package fleet

import "syscall"

// DieWithUs are the attributes of a process that no signal from the terminal reaches but through this one. Only Linux
// can tie its life to that of its parent.
func DieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
