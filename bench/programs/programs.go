// Package programs is all benchmark programs in one, minisgl-bench NAME [flags]: a package,
// so that there can be one that uses GPUs.
package programs

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/minisgl/minisgl/bench/internal/ablation"
	"github.com/minisgl/minisgl/bench/internal/client"
	"github.com/minisgl/minisgl/bench/internal/compare"
	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/offline"
	"github.com/minisgl/minisgl/bench/internal/onebatch"
	"github.com/minisgl/minisgl/bench/internal/onebatchserver"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/replay"
	"github.com/minisgl/minisgl/bench/internal/scaling"
	"github.com/minisgl/minisgl/bench/internal/selftest"
	"github.com/minisgl/minisgl/bench/internal/serving"
	"github.com/minisgl/minisgl/bench/internal/sweep"
)

var all = []program.Program{
	ablation.Program,
	client.Program,
	compare.Program,
	mockserver.Program,
	offline.Program,
	onebatch.Program,
	onebatchserver.Program,
	replay.Program,
	scaling.Program,
	selftest.Program,
	serving.Program,
	sweep.Program,
}

// Main runs the program that the first argument names.
func Main() {
	if len(os.Args) > 1 {
		if at := slices.IndexFunc(all, func(p program.Program) bool { return p.Name == os.Args[1] }); at >= 0 {
			os.Args = os.Args[1:]
			program.Main(all[at])
		}
	}
	os.Exit(usage(os.Args[1:], os.Stdout, os.Stderr))
}

// usage lists the programs: as an answer if that was asked for, else as an error.
func usage(args []string, stdout, stderr io.Writer) int {
	w, code := stdout, program.ExitOK
	if len(args) > 0 && !slices.Contains([]string{"help", "--help", "-h"}, args[0]) {
		w, code = stderr, program.ExitUsage
		fmt.Fprintf(w, "minisgl-bench: there is no program %q\n\n", args[0])
	}
	fmt.Fprint(w, "Usage: minisgl-bench NAME [flags]; NAME --help tells more.\n\n")
	for _, p := range all {
		fmt.Fprintf(w, "  %-14s %s\n", p.Name, p.Command().Short)
	}
	return code
}
