// Sweep measures a server under rising loads and finds where it saturates.
package main

import (
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/sweep"
)

func main() { program.Main(sweep.Program) }
