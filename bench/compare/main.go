// Compare decides whether one server, or one version of it, is worse than another.
package main

import (
	"github.com/minisgl/minisgl/bench/internal/compare"
	"github.com/minisgl/minisgl/bench/internal/program"
)

func main() { program.Main(compare.Program) }
