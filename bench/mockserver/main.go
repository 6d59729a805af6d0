// Mockserver is an inference server with known delays and faults, to check load
// generators against.
package main

import (
	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/program"
)

func main() { program.Main(mockserver.Program) }
