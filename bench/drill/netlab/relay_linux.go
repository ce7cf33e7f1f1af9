package netlab

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// device is the name of the TUN device in every namespace.
const device = "tk0"

// relay carries IPv4 packets between TUN devices: what netem does, where the kernel has none.
type relay struct {
	link    Link
	devices map[[4]byte]*os.File
	reading sync.WaitGroup
}

func startRelay(l *Lab, hosts map[string]string, link Link) (*relay, error) {
	r := &relay{link: link, devices: map[[4]byte]*os.File{}}
	for s, host := range hosts { // order does not matter: all are joined alike
		f, err := openDevice(l.space(s))
		if err != nil {
			r.close()
			return nil, err
		}
		var addr [4]byte
		fmt.Sscanf(host, "%d.%d.%d.%d", &addr[0], &addr[1], &addr[2], &addr[3])
		r.devices[addr] = f
		if err := l.ip(l.space(s), "addr add "+host+"/24 dev "+device, "link set "+device+" up"); err != nil {
			r.close()
			return nil, err
		}
	}
	for _, f := range r.devices { // order does not matter: all are read alike
		r.reading.Add(1)
		// Ends when close closes the device.
		go func() {
			defer r.reading.Done()
			r.read(f)
		}()
	}
	return r, nil
}

// openDevice makes a TUN device in a namespace. The thread that enters the namespace stays there, so it must end: its
// goroutine ends without unlocking it.
func openDevice(space string) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	result := make(chan opened, 1) // one result: the goroutine never waits
	// Ends with its one result.
	go func() {
		runtime.LockOSThread()
		f, err := openDeviceHere(space)
		result <- opened{f, err}
	}()
	o := <-result
	return o.f, o.err
}

func openDeviceHere(space string) (*os.File, error) {
	ns, err := os.Open("/run/netns/" + space)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("%w: setns: %w", ErrUnable, err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: /dev/net/tun: %w", ErrUnable, err)
	}
	req, err := unix.NewIfreq(device)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%w: TUN device: %w", ErrUnable, err)
	}
	return os.NewFile(uintptr(fd), device), nil
}

// read sends on what one device gives.
func (r *relay) read(f *os.File) {
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		if err != nil {
			return
		}
		if n < 20 || buf[0]>>4 != 4 {
			continue
		}
		to := r.devices[[4]byte(buf[16:20])]
		if to == nil || rand.Float64() < r.link.Loss {
			continue
		}
		packet := append([]byte(nil), buf[:n]...)
		delay := r.link.Delay
		if r.link.Jitter > 0 {
			delay += time.Duration(rand.Int64N(int64(2*r.link.Jitter))) - r.link.Jitter
		}
		time.AfterFunc(delay, func() { to.Write(packet) })
	}
}

func (r *relay) close() {
	for _, f := range r.devices { // order does not matter: all are closed
		f.Close()
	}
	r.reading.Wait()
}
