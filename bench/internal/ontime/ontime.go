// Package ontime waits for a time more exactly than Go's timers. Where a process
// is idle the runtime waits in epoll, whose time limits are whole milliseconds,
// rounded up, so that a timer ends up to a millisecond late.
package ontime

import (
	"context"
	"sync"
	"time"
)

// alarms are kept between waits, since each costs system calls to make. Those
// that the pool lets go of are closed by the finalizers of their files.
var alarms = sync.Pool{New: func() any { return newAlarm() }}

// Wait waits until a time; false means that ctx ended first.
func Wait(ctx context.Context, at time.Time) bool {
	wait := time.Until(at)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	a := alarms.Get().(*alarm)
	defer alarms.Put(a)
	a.set(wait)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
