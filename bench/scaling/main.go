// Scaling measures how speed grows with cores and with the batch, and falls with depth.
package main

import (
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/scaling"
)

func main() { program.Main(scaling.Program) }
