// Package ablation measures what an optimisation of the engine is worth: it runs
// the same load with it off and on, in this process.
package ablation

import (
	"io"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"
	"github.com/spf13/cobra"

	"github.com/minisgl/minisgl/bench/internal/program"
)

// Program is the measurement as a program.
var Program = program.Program{Name: "ablation", Command: newCommand}

func newCommand() *cobra.Command {
	root := &cobra.Command{Use: "ablation", Short: "What an optimisation of the engine is worth, on this machine"}
	root.AddCommand(turnsCommand(), mixedCommand(), speculationCommand())
	return root
}

// newTable returns a table that prints its header as it is.
func newTable(w io.Writer) *tablewriter.Table {
	return tablewriter.NewTable(w, tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithRowAlignment(tw.AlignRight))
}
