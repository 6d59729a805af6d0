package ontime

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm ends the runtime's wait in epoll at a time that is exact to microseconds;
// the runtime then finds its timers that are due. Nobody reads the file.
type alarm struct {
	fd   int
	file *os.File // puts fd into epoll and closes it; nil if the system has no more files: then timers are as late as they are
}

// margin is how long after a timer its alarm comes, for the timer to be due.
const margin = 5 * time.Microsecond

func newAlarm() *alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return &alarm{}
	}
	return &alarm{fd, os.NewFile(uintptr(fd), "timerfd")}
}

func (a *alarm) set(wait time.Duration) {
	if a.file == nil {
		return
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(wait + margin))}
	_ = unix.TimerfdSettime(a.fd, 0, &spec, nil) // without it the timer is late
}
