package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// optionNames reads long options as Python's argparse does, which mini-sglang's
// documents count on: an option has several names, and any prefix of them that
// fits one option only stands for it.
type optionNames struct {
	canonical map[string]string // each name of an option to its first name
	ambiguous error             // the last prefix that fits several
}

// acceptNames makes cmd accept aliases (name to further names) and prefixes. It
// is called when all flags are defined.
func acceptNames(cmd *cobra.Command, aliases map[string][]string) {
	cmd.InitDefaultHelpFlag()
	n := &optionNames{canonical: map[string]string{}}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		n.canonical[f.Name] = f.Name
		for _, alias := range aliases[f.Name] {
			n.canonical[alias] = f.Name
			f.Usage += fmt.Sprintf(" (also --%s)", alias)
		}
	})
	cmd.Flags().SetNormalizeFunc(n.resolve)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if n.ambiguous != nil {
			return n.ambiguous
		}
		return err
	})
}

// resolve returns the option's first name, or name itself if there is none.
func (n *optionNames) resolve(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if canonical, ok := n.canonical[name]; ok {
		return pflag.NormalizedName(canonical)
	}
	var fits []string
	for candidate, canonical := range n.canonical {
		if strings.HasPrefix(candidate, name) && !slices.Contains(fits, canonical) {
			fits = append(fits, canonical)
		}
	}
	switch len(fits) {
	case 0:
		return pflag.NormalizedName(name)
	case 1:
		return pflag.NormalizedName(fits[0])
	}
	slices.Sort(fits)
	n.ambiguous = usageErrorf("ambiguous option: --%s could be --%s", name, strings.Join(fits, ", --"))
	return pflag.NormalizedName(name)
}
