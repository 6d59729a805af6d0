package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// Version is the version of minisgl.
const Version = "0.1.0"

func opsCommand(p *program) *cobra.Command {
	var model, source string
	cmd := &cobra.Command{
		Use:   "ops [flags]",
		Short: "Print the operations of a model's forward pass",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := p.engines.OpList(cmd.Context(), model, source)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(p.stdout, list)
			return err
		},
	}
	cmd.Flags().StringVar(&model, "model-path", defaultModel, modelUsage)
	cmd.Flags().StringVar(&source, "model-source", "huggingface", sourceUsage)
	acceptSettings(cmd)
	acceptNames(cmd, map[string][]string{"model-path": {"model"}})
	return cmd
}

func fetchCommand(p *program) *cobra.Command {
	var source string
	cmd := &cobra.Command{
		Use:   "fetch NAME",
		Short: "Fetch a model into the cache, or its newest version, and print its path",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := p.engines.Resolve(cmd.Context(), args[0], source, p.stderr)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(p.stdout, path)
			return err
		},
	}
	cmd.Flags().StringVar(&source, "model-source", "huggingface", sourceUsage)
	acceptSettings(cmd)
	acceptNames(cmd, nil)
	return cmd
}

func versionCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(p.stdout, "minisgl %s %s %s/%s\n", Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
