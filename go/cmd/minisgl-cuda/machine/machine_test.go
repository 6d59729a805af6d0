//go:build cuda

package machine

import (
	"testing"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/device/devicetest"
	"github.com/minisgl/minisgl/go/internal/flashinfer"
)

// scripts/gpu-check.sh runs these where there is a GPU; this build starts nowhere else.

func TestDevice(t *testing.T) { devicetest.Run(t, open) }

func TestFloat8(t *testing.T) { devicetest.Float8(t, open) }

// Where make flashinfer was run, the library is beside the test.
func TestFlashInfer(t *testing.T) {
	if _, err := flashinfer.Open(); err != nil {
		t.Skip(err)
	}
	devicetest.FlashInfer(t, func() (device.Device, error) {
		d, err := open()
		if err == nil {
			err = FlashInfer([]device.Device{d})
		}
		return d, err
	})
}

func open() (device.Device, error) {
	devs, _, err := Open(1, 0)
	if err != nil {
		return nil, err
	}
	return devs[0], nil
}
