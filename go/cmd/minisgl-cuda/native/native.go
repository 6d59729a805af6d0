//go:build cuda

// Package native makes bindings/native, the Python module for CPUs, one for GPUs:
// scripts/native.sh links it into what gopy writes.
package native

import (
	_ "github.com/go-python/gopy/gopyh" // what gopy writes imports it
	_ "github.com/minisgl/minisgl/bindings/native"

	"github.com/minisgl/minisgl/go/cmd/minisgl-cuda/machine"
	"github.com/minisgl/minisgl/go/internal/gpu"
)

func init() { gpu.Open, gpu.FlashInfer = machine.Open, machine.FlashInfer }
