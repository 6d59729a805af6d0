//go:build !linux

package cpu

import "runtime"

// physicalCores returns the number of threads to use where the topology of the
// processor is not known.
func physicalCores() int { return min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) }
