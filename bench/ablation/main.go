// Ablation switches one of the engine's optimisations off and on, runs the same
// load both ways in this process, and prints what it is worth.
package main

import (
	"github.com/minisgl/minisgl/bench/internal/ablation"
	"github.com/minisgl/minisgl/bench/internal/program"
)

func main() { program.Main(ablation.Program) }
