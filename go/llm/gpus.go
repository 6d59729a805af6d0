package llm

import (
	"errors"
	"fmt"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/gpu"
)

// openGPUs opens the first n GPUs, for graphs of so many rows, and tells what they
// are. The error says why they can't be used.
func openGPUs(n, graphRows int) (devs []device.Device, name string, err error) {
	count, err := gpu.Count()
	switch {
	case err != nil:
		return nil, "", err
	case gpu.Open == nil:
		return nil, "", fmt.Errorf("this program was built without CUDA; make cuda builds bin/%s", gpu.Program)
	case n > count:
		return nil, "", fmt.Errorf("%d ranks need as many GPUs, there are %d", n, count)
	}
	for i := range n {
		dev, called, err := gpu.Open(i, graphRows)
		if err != nil {
			for _, dev := range devs {
				err = errors.Join(err, dev.Close())
			}
			return nil, "", err
		}
		devs, name = append(devs, dev), called
	}
	return devs, name, nil
}
