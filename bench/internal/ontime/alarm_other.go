//go:build !linux

package ontime

import "time"

// alarm is not needed where the runtime's wait has exact limits.
type alarm struct{}

func newAlarm() *alarm { return &alarm{} }

func (*alarm) set(time.Duration) {}
