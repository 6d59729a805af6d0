//go:build !cuda && amd64

package cuda

import (
	"math"
	"testing"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/device/devicetest"
	"github.com/minisgl/minisgl/go/internal/ops"
	kernels "github.com/minisgl/minisgl/kernels/cuda"
)

var _ device.Device = (*Device)(nil)

func opener(order kernels.Order) devicetest.Open {
	return func() (device.Device, error) { return NewEmulated(order) }
}

func TestDevice(t *testing.T) { devicetest.Run(t, opener(kernels.Forward)) }

// The order of a block's threads never shows: no barrier is missing.
func TestSameBits(t *testing.T) {
	want := devicetest.Workload(t, opener(kernels.Forward))
	for _, order := range []kernels.Order{kernels.Backward, kernels.Shuffled} {
		got := devicetest.Workload(t, opener(order))
		if len(got) != len(want) || len(want) == 0 {
			t.Fatalf("order %d: %d values, want %d", order, len(got), len(want))
		}
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("order %d: value %d of %d is %v, want %v", order, i, len(want), got[i], want[i])
			}
		}
	}
}

func TestClosed(t *testing.T) {
	d, err := NewEmulated(kernels.Forward)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := d.Submit(&ops.List{}); err == nil {
		t.Error("submit to a closed device: no error")
	}
}
