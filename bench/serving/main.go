// Serving is sglang's serving benchmark: its flags, datasets and result table.
package main

import (
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/serving"
)

func main() { program.Main(serving.Program) }
