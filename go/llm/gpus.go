package llm

import (
	"fmt"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/gpu"
)

// openGPUs opens the first n GPUs, for graphs of so many rows, and tells what they
// are. The error says why they can't be used.
func openGPUs(n, graphRows int) (devs []device.Device, name string, err error) {
	if gpu.Open != nil {
		return gpu.Open(n, graphRows)
	}
	if _, err := gpu.Count(); err != nil {
		return nil, "", err
	}
	return nil, "", fmt.Errorf("this program was built without CUDA; make cuda builds bin/%s", gpu.Program)
}
