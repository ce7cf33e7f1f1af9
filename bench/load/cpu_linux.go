package load

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// clockTick is the unit of CPU times in /proc: USER_HZ, 100 on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// CPUTime is the CPU time that a process has used, with all its threads, in user and in kernel mode.
func CPUTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in brackets and may itself hold blanks and brackets.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const utime, stime = 11, 12
	if len(fields) <= stime {
		return 0, fmt.Errorf("load: /proc/%d/stat has %d fields", pid, len(fields))
	}
	user, err := strconv.ParseInt(string(fields[utime]), 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(string(fields[stime]), 10, 64)
	if err != nil {
		return 0, err
	}
	return time.Duration(user+system) * clockTick, nil
}

// window reads the clock and the CPU times of server and generator at the edges of what is measured.
type window struct {
	pid                      int // of the server; 0: none
	wall                     time.Time
	serverStart, ownStart    time.Duration
	taken, serverCPU, ownCPU time.Duration // set by close
}

func (w *window) cpu() (server, own time.Duration, err error) {
	if w.pid != 0 {
		if server, err = CPUTime(w.pid); err != nil {
			return 0, 0, err
		}
	}
	own, err = CPUTime(os.Getpid())
	return server, own, err
}

func (w *window) open() (err error) {
	w.wall = time.Now()
	w.serverStart, w.ownStart, err = w.cpu()
	return err
}

func (w *window) close() error {
	w.taken = time.Since(w.wall)
	server, own, err := w.cpu()
	w.serverCPU, w.ownCPU = server-w.serverStart, own-w.ownStart
	return err
}

// fill writes the rates of replies in the window into r.
func (w *window) fill(r *Result) {
	r.Seconds = w.taken.Seconds()
	r.RepliesPerSecond = float64(r.Replies) / r.Seconds
	r.ServerCores, r.GeneratorCores = w.serverCPU.Seconds()/r.Seconds, w.ownCPU.Seconds()/r.Seconds
	if r.Replies > 0 {
		r.ServerCPUPerOp = float64(w.serverCPU.Microseconds()) / float64(r.Replies)
	}
}
