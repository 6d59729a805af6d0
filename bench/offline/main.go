// Offline measures the throughput of the engine without a server.
package main

import (
	"github.com/minisgl/minisgl/bench/internal/offline"
	"github.com/minisgl/minisgl/bench/internal/program"
)

func main() { program.Main(offline.Program) }
