package fleet

import "syscall"

// DieWithUs are the attributes of a process that the kernel kills when this one is killed, so that none is left behind,
// and that no signal from the terminal reaches but through this one.
func DieWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
