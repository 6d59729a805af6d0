// Replay sends a recorded load again, at its own times.
package main

import (
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/replay"
)

func main() { program.Main(replay.Program) }
