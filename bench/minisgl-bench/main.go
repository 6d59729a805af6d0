// Minisgl-bench is all benchmark programs in one: minisgl-bench NAME [flags].
package main

import "github.com/minisgl/minisgl/bench/programs"

func main() { programs.Main() }
