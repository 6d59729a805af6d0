package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

const (
	configFlag     = "config"
	variablePrefix = "MINISGL_"
	maxConfigBytes = 1 << 20
)

// acceptSettings lets the flags of cmd be set by other means than the command
// line, too: a flag that it doesn't give takes the value of its environment
// variable, else that of the file which --config names. It is called when all flags are
// defined, and before acceptNames. Variables with one of the prefixes come before
// those that only begin with MINISGL_.
func acceptSettings(cmd *cobra.Command, prefixes ...string) {
	file := cmd.Flags().String(configFlag, "", "YAML file of flags: \"page-size: 16\", a line for each")
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		for _, prefix := range append(prefixes, variablePrefix) {
			if err := readVariables(cmd.Flags(), prefix); err != nil {
				return err
			}
		}
		if *file != "" {
			if err := readSettings(cmd.Flags(), *file); err != nil {
				return err
			}
		}
		if before != nil {
			return before(cmd, args)
		}
		return nil
	}
}

// variable is the environment variable of a flag: MINISGL_PAGE_SIZE.
func variable(prefix, flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// readVariables sets the flags for which there is an environment variable with
// the prefix.
func readVariables(flags *pflag.FlagSet, prefix string) error {
	var failure error
	flags.VisitAll(func(f *pflag.Flag) {
		name := variable(prefix, f.Name)
		value, ok := os.LookupEnv(name)
		if !ok || value == "" || f.Changed || f.Name == "help" || failure != nil {
			return
		}
		if err := f.Value.Set(value); err != nil {
			failure = usageErrorf("the environment variable %s can't be %q: %v", name, value, err)
		}
		f.Changed = true // stronger than a file
	})
	return failure
}

// readSettings sets the flags that a YAML file holds. Names may have underscores
// in the place of dashes, as in Python.
func readSettings(flags *pflag.FlagSet, path string) error {
	settings, err := parseSettings(path)
	if err != nil {
		return err
	}
	for _, s := range settings {
		f := flags.Lookup(strings.ReplaceAll(s.name, "_", "-"))
		switch {
		case f == nil || f.Name == configFlag || f.Name == "help":
			return usageErrorf("%s, line %d: there is no option %q", path, s.line, s.name)
		case f.Changed: // the command line or the environment has said
			continue
		}
		if err := f.Value.Set(s.value); err != nil {
			return usageErrorf("%s, line %d: %s can't be %q: %v", path, s.line, s.name, s.value, err)
		}
	}
	return nil
}

type setting struct {
	name, value string
	line        int
}

// parseSettings reads a YAML mapping of names to plain values.
func parseSettings(path string) ([]setting, error) {
	data, err := readBounded(path, maxConfigBytes)
	if err != nil {
		return nil, usageErrorf("--config: %v", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, usageErrorf("--config: %s: %v", path, err)
	}
	if doc.Kind == 0 { // an empty file
		return nil, nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, usageErrorf("--config: %s must hold options and their values, one a line, such as \"page-size: 16\"", path)
	}
	var list []setting
	for pair := range slices.Chunk(root.Content, 2) {
		key, value := pair[0], pair[1]
		if value.Kind != yaml.ScalarNode {
			return nil, usageErrorf("%s, line %d: the value of %s must be a single one", path, value.Line, key.Value)
		}
		if value.Tag != "!!null" {
			list = append(list, setting{key.Value, value.Value, key.Line})
		}
	}
	return list, nil
}

// readBounded reads a file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > limit || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file of at most %d bytes", path, limit)
	}
	return os.ReadFile(path)
}
