package shell

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// params shows the sampling parameters, or sets those that argument names. It
// sets all of them or none.
func (s *shell) params(argument string) error {
	params := s.Params
	flags := pflag.NewFlagSet("params", pflag.ContinueOnError)
	flags.SortFlags = false
	s.DefineParams(flags, &params)
	if argument == "" {
		flags.VisitAll(func(f *pflag.Flag) {
			fmt.Fprintf(s.Out, "  %-20s %-6s  %s\n", paramName(f), f.Value, f.Usage)
		})
		return nil
	}
	for _, pair := range pairs(argument) {
		name, value, ok := strings.Cut(pair, "=")
		f := flags.Lookup(strings.ReplaceAll(name, "_", "-"))
		switch {
		case f == nil:
			return fmt.Errorf("there is no parameter %q; /params shows all", name)
		case !ok:
			return fmt.Errorf("say its value: /params %s=VALUE", name)
		}
		if err := f.Value.Set(value); err != nil {
			return fmt.Errorf("%s can't be %q: %w", name, value, err)
		}
	}
	if err := params.Validate(); err != nil {
		return err
	}
	s.Params = params
	return nil
}

func paramName(f *pflag.Flag) string { return strings.ReplaceAll(f.Name, "-", "_") }

// pairs splits "a=1 b=2"; the one pair "a 1" is a=1.
func pairs(argument string) []string {
	words := strings.Fields(argument)
	if len(words) == 2 && !strings.Contains(argument, "=") {
		return []string{words[0] + "=" + words[1]}
	}
	return words
}
