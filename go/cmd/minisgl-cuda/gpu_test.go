//go:build cuda

package main

import (
	"testing"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/device/devicetest"
)

// scripts/gpu-check.sh runs it where there is a GPU; this build starts nowhere else.
func TestDevice(t *testing.T) {
	devicetest.Run(t, func() (device.Device, error) {
		d, _, err := open(0, 0)
		return d, err
	})
}
