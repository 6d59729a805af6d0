// Package lora chooses which LoRA adapter a request asks for, as sglang's
// benchmarks do.
package lora

import (
	"fmt"
	"math"

	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/dataset"
)

// Adapters are the adapters of a load, and how requests are spread over them.
type Adapters struct {
	Names        []string
	distribution string
	alpha        float64
	next         int
}

// Flag is the one that takes several names in a row.
const Flag = "lora-name"

// Define adds the flags to f.
func (a *Adapters) Define(f *pflag.FlagSet) {
	f.StringArrayVar(&a.Names, Flag, nil, "LoRA adapters to ask for; several may follow")
	f.StringVar(&a.distribution, "lora-request-distribution", "uniform", "uniform, distinct (in turn) or skewed")
	f.Float64Var(&a.alpha, "lora-zipf-alpha", 1.5, "of skewed: each adapter is asked for so many times less than the one before")
}

// Check names the flag that cannot be used.
func (a *Adapters) Check() error {
	switch a.distribution {
	case "uniform", "distinct":
	case "skewed":
		if !(a.alpha > 1) {
			return fmt.Errorf("--lora-zipf-alpha is %v: want more than 1", a.alpha)
		}
	default:
		return fmt.Errorf("--lora-request-distribution: %q: want uniform, distinct or skewed", a.distribution)
	}
	return nil
}

// Pick returns the name for the next request. It must not be called without names.
func (a *Adapters) Pick(src *dataset.Source) string {
	n := len(a.Names)
	switch a.distribution {
	case "distinct":
		a.next++
		return a.Names[(a.next-1)%n]
	case "skewed":
		sum, at := 0.0, 0
		for i := range n {
			sum += math.Pow(a.alpha, -float64(i))
		}
		for left := src.Numpy.Float64() * sum; at < n-1; at++ {
			if left -= math.Pow(a.alpha, -float64(at)); left < 0 {
				break
			}
		}
		return a.Names[at]
	}
	return a.Names[src.Python.Below(n)]
}
