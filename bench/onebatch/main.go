// Onebatch measures single forward passes of the engine: prefill and decode of one batch.
package main

import (
	"github.com/minisgl/minisgl/bench/internal/onebatch"
	"github.com/minisgl/minisgl/bench/internal/program"
)

func main() { program.Main(onebatch.Program) }
