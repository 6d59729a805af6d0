//go:build cuda

// Command minisgl-bench-cuda is minisgl-bench for machines with a GPU.
package main

import (
	"github.com/minisgl/minisgl/bench/programs"
	"github.com/minisgl/minisgl/go/cmd/minisgl-cuda/machine"
	"github.com/minisgl/minisgl/go/internal/gpu"
)

func main() {
	gpu.Open, gpu.FlashInfer = machine.Open, machine.FlashInfer
	programs.Main()
}
