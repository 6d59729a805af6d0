// Onebatchserver measures one batch at a time at a server.
package main

import (
	"github.com/minisgl/minisgl/bench/internal/onebatchserver"
	"github.com/minisgl/minisgl/bench/internal/program"
)

func main() { program.Main(onebatchserver.Program) }
