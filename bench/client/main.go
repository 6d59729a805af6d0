// Client measures a chat server: it sends requests at a rate, reads the streamed
// answers and prints latency and throughput in the layout of sglang's serving
// benchmark.
package main

import (
	"github.com/minisgl/minisgl/bench/internal/client"
	"github.com/minisgl/minisgl/bench/internal/program"
)

func main() { program.Main(client.Program) }
