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

// window reads clock and CPU time of the server at the edges of what is measured.
type window struct {
	pid   int
	wall  time.Time
	cpu   time.Duration
	taken time.Duration // wall time
	used  time.Duration // CPU time
}

func (w *window) open() (err error) {
	w.wall = time.Now()
	if w.pid != 0 {
		w.cpu, err = CPUTime(w.pid)
	}
	return err
}

func (w *window) close() (err error) {
	w.taken = time.Since(w.wall)
	if w.pid != 0 {
		w.used, err = CPUTime(w.pid)
		w.used -= w.cpu
	}
	return err
}

// fill writes the rates of replies in the window into r.
func (w *window) fill(r *Result) {
	r.Seconds = w.taken.Seconds()
	r.RepliesPerSecond = float64(r.Replies) / r.Seconds
	r.ServerCores = w.used.Seconds() / r.Seconds
	if r.Replies > 0 {
		r.ServerCPUPerOp = float64(w.used.Microseconds()) / float64(r.Replies)
	}
}
