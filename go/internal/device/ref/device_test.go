package ref_test

import (
	"testing"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/device/devicetest"
	"github.com/minisgl/minisgl/go/internal/device/ref"
)

var _ device.Device = (*ref.Device)(nil)

func TestDevice(t *testing.T) {
	devicetest.Run(t, func() (device.Device, error) { return ref.New(), nil })
}
