package ablation

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/minisgl/minisgl/go/llm"
)

// option is one of the engine's options that can be compared.
type option struct {
	name    string
	missing string // why it cannot be compared without --device cuda; "" if it can
	// changes are the baseline with other values of the option; nil if GPUs have none either.
	changes func(c *config) []configuration
}

// options are in the order in which they are measured.
var options = []option{
	{name: "overlap", changes: func(c *config) []configuration {
		cfg := c.base
		cfg.DisableOverlap = !cfg.DisableOverlap
		return []configuration{{name: "overlap " + onOff(!cfg.DisableOverlap), cfg: cfg}}
	}},
	{name: "cuda-graph", missing: "graphs replay the launches of a GPU's kernels, and the CPU launches none", changes: func(c *config) []configuration {
		cfg := c.base
		cfg.CUDAGraphMaxBS = new(0)
		return []configuration{{name: "cuda-graph off", cfg: cfg}}
	}},
	{name: "cache-type", changes: func(c *config) []configuration {
		cfg := c.base
		cfg.CacheType = map[bool]string{true: "naive", false: "radix"}[cfg.CacheType == "radix"]
		return []configuration{{name: "cache-type " + cfg.CacheType, cfg: cfg}}
	}},
	{name: "attention-backend", missing: "there is one whose tokens these are; fi, on GPUs, has others: measure all with --attention-backend fi"},
	{name: "chunk-size", changes: func(c *config) []configuration {
		return values("chunk-size", c.chunkSizes, func(v int) llm.Config {
			cfg := c.base
			cfg.MaxExtendTokens = v
			return cfg
		})
	}},
	{name: "page-size", changes: func(c *config) []configuration {
		return values("page-size", c.pageSizes, func(v int) llm.Config {
			cfg := c.base
			cfg.NumPageOverride = (cfg.NumPageOverride*cfg.PageSize + v - 1) / v // as many tokens
			cfg.PageSize = v
			return cfg
		})
	}},
	{name: "max-running", changes: func(c *config) []configuration {
		return values("max-running", c.maxRunning, func(v int) llm.Config {
			cfg := c.base
			cfg.MaxRunningReq = v
			return cfg
		})
	}},
}

func values(name string, list []int, config func(int) llm.Config) []configuration {
	var out []configuration
	for _, v := range list {
		out = append(out, configuration{name: fmt.Sprintf("%s %d", name, v), cfg: config(v)})
	}
	return out
}

func optionNames() string {
	names := make([]string, len(options))
	for i := range options {
		names[i] = options[i].name
	}
	return strings.Join(names, ", ")
}

// configurations are the baseline and what is picked, and a line for each that
// is picked but not measured.
func (c *config) configurations() (list []*configuration, missing []string, err error) {
	for _, name := range c.what {
		if !slices.ContainsFunc(options, func(o option) bool { return o.name == name }) {
			return nil, nil, fmt.Errorf("--what %q: there is no such option; want some of %s", name, optionNames())
		}
	}
	base := &configuration{name: baseline, cfg: c.base}
	list = []*configuration{base}
	for _, o := range options {
		if len(c.what) > 0 && !slices.Contains(c.what, o.name) {
			continue
		}
		if o.changes == nil || o.missing != "" && c.base.Device != "cuda" {
			missing = append(missing, o.name+": "+o.missing)
			continue
		}
		for _, change := range o.changes(c) {
			if reflect.DeepEqual(change.cfg, base.cfg) {
				missing = append(missing, change.name+": the baseline has it")
				continue
			}
			list = append(list, &change)
		}
	}
	if len(list) == 1 {
		return nil, nil, fmt.Errorf("--what: nothing is left to measure. %s", strings.Join(missing, ". "))
	}
	return list, missing, nil
}

// describe names the baseline's values of the options.
func describe(cfg llm.Config) string {
	return fmt.Sprintf("overlap %s, cache-type %s, chunk-size %d, page-size %d, max-running %d",
		onOff(!cfg.DisableOverlap), cfg.CacheType, cfg.MaxExtendTokens, cfg.PageSize, cfg.MaxRunningReq)
}

func onOff(on bool) string { return map[bool]string{true: "on", false: "off"}[on] }
