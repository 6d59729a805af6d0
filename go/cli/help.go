package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const groupAnnotation = "minisgl_group"

// inGroup puts the flags that define adds under a title of --help.
func inGroup(flags *pflag.FlagSet, title string, define func()) {
	known := map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
	define()
	flags.VisitAll(func(f *pflag.Flag) {
		if !known[f.Name] && f.Annotations[groupAnnotation] == nil {
			f.Annotations = map[string][]string{groupAnnotation: {title}}
		}
	})
}

// groupHelp prints the flags of cmd by group, in the order of titles; the others
// come last.
func groupHelp(cmd *cobra.Command, titles ...string) {
	cmd.Flags().SortFlags = false
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		var out strings.Builder
		fmt.Fprintf(&out, "%s\n\nUsage:\n  %s\n", cmd.Short, cmd.UseLine())
		for _, title := range append(titles, "") {
			group := pflag.NewFlagSet(title, pflag.ContinueOnError)
			group.SortFlags = false
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				if of := f.Annotations[groupAnnotation]; (title == "" && of == nil) || (of != nil && of[0] == title) {
					group.AddFlag(f)
				}
			})
			if group.HasFlags() {
				fmt.Fprintf(&out, "\n%s:\n%s", orOther(title), group.FlagUsages())
			}
		}
		fmt.Fprintf(&out, "\nA flag that isn't given takes the value of its variable, such as %s, else that of --config's file.\nNames may be cut short as long as they are clear.\n", variable(variablePrefix, "page-size"))
		fmt.Fprint(cmd.OutOrStdout(), out.String())
	})
}

func orOther(title string) string {
	if title == "" {
		return "Other"
	}
	return title
}
