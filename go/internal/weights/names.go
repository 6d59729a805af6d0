package weights

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// architectureOf finds the architecture that the metadata names, and that name, which prefixes its keys.
func architectureOf(metadata *Metadata) (string, architecture, error) {
	name, ok := metadata.String("general.architecture")
	if !ok {
		return "", architecture{}, fmt.Errorf("metadata lacks general.architecture")
	}
	arch, ok := architectures[name]
	if !ok {
		known := slices.Sorted(maps.Keys(architectures))
		return "", architecture{}, fmt.Errorf("GGUF architecture %q is not supported, only %s", name, strings.Join(known, ", "))
	}
	return name, arch, nil
}

// rename returns the Hugging Face name of a GGUF tensor and, inside a layer, its module.
func (a *architecture) rename(name string, layers int) (renamed, module string, err error) {
	if renamed, ok := wholeNames[name]; ok {
		return renamed, "", nil
	}
	if rest, ok := strings.CutPrefix(name, "blk."); ok {
		number, part, _ := strings.Cut(rest, ".")
		module, kind, _ := strings.Cut(part, ".")
		layer, err := strconv.Atoi(number)
		target, known := a.layer[module]
		if err == nil && known && strconv.Itoa(layer) == number && (kind == "weight" || kind == "bias") {
			if layer < 0 || layer >= layers {
				return "", "", fmt.Errorf("tensor %q belongs to layer %d of a model with %d", name, layer, layers)
			}
			return fmt.Sprintf("model.layers.%d.%s.%s", layer, target, kind), module, nil
		}
	}
	return "", "", fmt.Errorf("tensor %q is not known for this architecture (%s)", name, a.class)
}

// order returns the permutation of a module's rows, given the number of heads they hold.
func order(t *stored, heads int) (permutation, error) {
	if rows := t.shape[0]; heads < 1 || rows%(2*heads) != 0 {
		return permutation{}, fmt.Errorf("tensor %q: %d rows are not %d heads of even size", t.name, rows, heads)
	}
	if len(t.shape) > 2 || len(t.shape) == 1 && formats[t.kind].blockSize > 1 {
		return permutation{}, fmt.Errorf("tensor %q: shape %v of type %v can't be put in order", t.name, t.shape, t.kind)
	}
	return permutation{half: t.shape[0] / heads / 2}, nil
}
