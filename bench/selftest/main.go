// Selftest tells how exact this load generator is on this machine.
package main

import (
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/selftest"
)

func main() { program.Main(selftest.Program) }
