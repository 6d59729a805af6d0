package program

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Spec is what the commands of the programs differ in.
type Spec struct {
	Name, Short, Long, Examples string
	// Define adds the flags, in the order of the help.
	Define func(f *pflag.FlagSet)
	// Check completes the settings; its error is one of usage.
	Check func(f *pflag.FlagSet) error
	// Run does the work: results go to stdout, messages to stderr.
	Run func(ctx context.Context, stdout, stderr io.Writer) error
}

// Command returns the command; all its arguments are flags.
func (s Spec) Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     s.Name,
		Short:   s.Short,
		Long:    s.Long,
		Example: s.Examples,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.Check(cmd.Flags()); err != nil {
				return Usage(err)
			}
			return s.Run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().SortFlags = false
	s.Define(cmd.Flags())
	return cmd
}
