//go:build !cuda && amd64

package llm_test

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/device/cuda"
	"github.com/minisgl/minisgl/go/internal/gpu"
	"github.com/minisgl/minisgl/go/llm"
)

// emulateGPUs lets "cuda" be the emulation of GPUs until the test ends.
func emulateGPUs(t *testing.T) {
	gpu.Open = func(n, graphRows int) (devs []device.Device, name string, err error) {
		ranks, err := cuda.NewEmulatedRanks(n, cuda.Emulation{Memory: 64 << 20})
		for _, dev := range ranks {
			dev.UseGraphs(graphRows)
			devs = append(devs, dev)
		}
		return devs, "emulated", err
	}
	t.Cleanup(func() { gpu.Open = nil })
}

// TestCUDAMetamorphic: on the emulation of GPUs one workload gives the same tokens with
// graphs and without, in batches of other sizes, on pages of other sizes, with overlap and
// without, and on two ranks.
func TestCUDAMetamorphic(t *testing.T) {
	emulateGPUs(t)
	reqs := workload(6)
	for i := range reqs {
		reqs[i].TokenIDs = reqs[i].TokenIDs[:min(len(reqs[i].TokenIDs), 12+i)]
		reqs[i].Params.MaxTokens = min(reqs[i].Params.MaxTokens, 6)
	}
	base := llm.Config{Model: tinyModel, Device: "cuda", DType: "bfloat16", MaxSeqLenOverride: 64, MaxRunningReq: 5, MaxExtendTokens: 32, CUDAGraphMaxBS: new(0)}
	want := tokens(t, open(t, base), reqs)
	for i, change := range []func(c *llm.Config){
		func(c *llm.Config) { c.CUDAGraphMaxBS = new(8) },
		func(c *llm.Config) { c.CUDAGraphMaxBS, c.MaxRunningReq, c.PageSize = new(4), 6, 16 },
		func(c *llm.Config) { c.CUDAGraphMaxBS, c.DisableOverlap, c.MaxExtendTokens = new(4), true, 16 },
		func(c *llm.Config) { c.CUDAGraphMaxBS, c.NumPageOverride, c.MixedTokens = new(8), 70, new(5) },
		func(c *llm.Config) { c.TPSize = 2 },
		func(c *llm.Config) { c.TPSize, c.CUDAGraphMaxBS, c.PageSize = 2, new(4), 16 },
	} {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			cfg := base
			change(&cfg)
			if diff := cmp.Diff(want, tokens(t, open(t, cfg), reqs)); diff != "" {
				t.Errorf("%+v: tokens differ (-base +got):\n%s", cfg, diff)
			}
		})
	}
}
