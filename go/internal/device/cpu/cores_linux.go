package cpu

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// physicalCores returns the number of cores that the process may run on, two
// hardware threads of a core counted once: they share the units that the kernels
// keep busy. A limit of the container, which GOMAXPROCS knows, counts as well.
func physicalCores() int {
	limit := min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return limit
	}
	cores := map[string]bool{}
	for cpu, left := 0, set.Count(); left > 0 && cpu < len(set)*64; cpu++ {
		if !set.IsSet(cpu) {
			continue
		}
		left--
		list, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
		if err != nil {
			return limit
		}
		cores[strings.TrimSpace(string(list))] = true
	}
	return max(1, min(limit, len(cores)))
}
