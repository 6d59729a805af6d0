package llm

import (
	"errors"

	"github.com/minisgl/minisgl/go/internal/device/cpu"
)

// Limits are what the machine can do with a number of threads.
type Limits struct {
	BytesPerSecond float64 // read from memory
	FlopsPerSecond float64 // float32 multiply-adds, each two operations
}

// MeasureLimits measures the machine with that many threads, 0 meaning all cores;
// it takes about a second, and nothing else should run meanwhile.
func MeasureLimits(threads int) (l Limits, err error) {
	d, err := cpu.New(threads)
	if err != nil {
		return Limits{}, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	l.BytesPerSecond, l.FlopsPerSecond, err = d.Probe()
	return l, err
}
