//go:build !cuda && amd64

package llm_test

import (
	"errors"
	"strconv"
	"strings"
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
	gpu.FlashInfer = func(devs []device.Device) error {
		for _, dev := range devs {
			dev.(*cuda.Device).EmulateFlashInfer()
		}
		return nil
	}
	t.Cleanup(func() { gpu.Open, gpu.FlashInfer = nil, nil })
}

// head64 has heads of 64 dimensions and a window of 8 positions.
const head64 = "../internal/model/testdata/tiny/mistral-window"

// TestCUDAAttention: a GPU takes our own kernel and FlashInfer's by their names, and refuses others with the reason.
func TestCUDAAttention(t *testing.T) {
	emulateGPUs(t)
	try := func(model, backend, kv, want string) {
		l, err := llm.New(t.Context(), llm.Config{
			Model: model, DType: "bfloat16", KVCacheDType: kv, AttentionBackend: backend,
			MaxSeqLenOverride: 64, MaxRunningReq: 2, MaxExtendTokens: 32, CUDAGraphMaxBS: new(0),
		})
		if err == nil {
			err = l.Close()
		}
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s, %s, %s: error %v, want %q", model, backend, kv, err, want)
		}
	}
	for backend, want := range map[string]string{
		"auto": "", "ours": "", "ours,auto": "", "fa": "", "fa,ours": "", "fi": "", "fi,fi": "", "fa,fi": "", "fi,ours": "",
		"trtllm": "needs TensorRT-LLM", "fi,trtllm": "needs TensorRT-LLM",
	} {
		try(head64, backend, "auto", want)
	}
	for kv, want := range map[string]string{"float16": "", "float32": "this one is float32", "int8": "this one is int8", "fp8": "this one is fp8"} {
		try(head64, "fi", kv, want)
	}
	try(tinyModel, "fi", "auto", "heads of [64 128 256] dimensions, and this model's have 16; ours")
	gpu.FlashInfer = func([]device.Device) error { return errors.New("no library") }
	try(head64, "fi", "auto", "fi is not available: no library; ours")
	try(head64, "fa,fi", "auto", "fi is not available: no library; ours")
	try(head64, "fi,fa", "auto", "")
}

// smallWorkload cuts a workload down: the emulation is slow.
func smallWorkload(n int) []llm.Request {
	reqs := workload(n)
	for i := range reqs {
		reqs[i].TokenIDs = reqs[i].TokenIDs[:min(len(reqs[i].TokenIDs), 12+i)]
		reqs[i].Params.MaxTokens = min(reqs[i].Params.MaxTokens, 6)
	}
	return reqs
}

// TestCUDAMetamorphic: on the emulation of GPUs one workload gives the same tokens with
// graphs and without, in batches of other sizes, on pages of other sizes, with overlap and
// without, and on two ranks.
func TestCUDAMetamorphic(t *testing.T) {
	for model, backend := range map[string]string{tinyModel: "ours", head64: "fa,fi"} {
		t.Run(backend, func(t *testing.T) { testCUDAMetamorphic(t, model, backend) })
	}
}

func testCUDAMetamorphic(t *testing.T, model, backend string) {
	emulateGPUs(t)
	reqs := smallWorkload(6)
	base := llm.Config{
		Model: model, AttentionBackend: backend, Device: "cuda", DType: "bfloat16", MaxSeqLenOverride: 64, MaxRunningReq: 5, MaxExtendTokens: 32, CUDAGraphMaxBS: new(0),
	}
	want := tokens(t, open(t, base), reqs)
	for i, change := range []func(c *llm.Config){
		func(c *llm.Config) { c.CUDAGraphMaxBS = new(8) },
		func(c *llm.Config) { c.CUDAGraphMaxBS, c.MaxRunningReq, c.PageSize = new(4), 6, 16 },
		func(c *llm.Config) { c.CUDAGraphMaxBS, c.DisableOverlap, c.MaxExtendTokens = new(4), true, 16 },
		func(c *llm.Config) { c.CUDAGraphMaxBS, c.NumPageOverride, c.MixedTokens = new(8), 70, new(5) },
		func(c *llm.Config) { c.CUDAGraphBS = []int{3, 1} },
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

// TestCUDAFloat8: weights that become e4m3 when they are loaded give the same tokens in any
// batches, on one GPU or two, and other ones than bfloat16's.
func TestCUDAFloat8(t *testing.T) {
	emulateGPUs(t)
	reqs := smallWorkload(4)
	base := llm.Config{
		Model: tinyModel, Device: "cuda", DType: "bfloat16", Quantization: "fp8", MaxSeqLenOverride: 64, MaxRunningReq: 4, MaxExtendTokens: 32, CUDAGraphMaxBS: new(0),
	}
	want := tokens(t, open(t, base), reqs)
	other := base
	other.TPSize, other.CUDAGraphMaxBS, other.MaxRunningReq, other.PageSize = 2, new(4), 3, 16
	if diff := cmp.Diff(want, tokens(t, open(t, other), reqs)); diff != "" {
		t.Errorf("tokens differ (-base +got):\n%s", diff)
	}
	wide := base
	wide.Quantization = "auto"
	if cmp.Equal(want, tokens(t, open(t, wide), reqs)) {
		t.Error("the weights were not rounded to e4m3")
	}
}
