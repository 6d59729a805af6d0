package program

import (
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Upper limits keep a slip of the keyboard from exhausting memory.
const (
	MaxRequests = 10_000_000
	MaxTokens   = 1 << 20
	MaxWords    = 1_000_000
)

// Rate is a flag in requests per second; "inf" sends all at once.
type Rate float64

// Infinite is the rate that sends all at once.
var Infinite = Rate(math.Inf(1))

// ParseRate reads a rate.
func ParseRate(text string) (Rate, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(v > 0) {
		return 0, fmt.Errorf("%q is not a rate: want a number of requests per second above 0, or inf", text)
	}
	return Rate(v), nil
}

func (r *Rate) String() string {
	if math.IsInf(float64(*r), 1) {
		return "inf"
	}
	return strconv.FormatFloat(float64(*r), 'g', -1, 64)
}

// Set implements pflag.Value.
func (r *Rate) Set(text string) error {
	v, err := ParseRate(text)
	if err == nil {
		*r = v
	}
	return err
}

// Type implements pflag.Value.
func (r *Rate) Type() string { return "rate" }

// Rates is a flag of finite rates separated by commas.
type Rates []Rate

func (r *Rates) String() string {
	parts := make([]string, len(*r))
	for i := range *r {
		parts[i] = (*r)[i].String()
	}
	return strings.Join(parts, ",")
}

// Set implements pflag.Value.
func (r *Rates) Set(text string) error {
	var out Rates
	for part := range strings.SplitSeq(text, ",") {
		v, err := ParseRate(part)
		if err != nil {
			return err
		}
		if v == Infinite {
			return fmt.Errorf("inf has no place on a curve: want numbers of requests per second")
		}
		out = append(out, v)
	}
	*r = out
	return nil
}

// Type implements pflag.Value.
func (r *Rates) Type() string { return "rates" }

// Bound is a whole number of a command line, and its limits.
type Bound struct {
	Flag            string
	Value, Low, Top int
}

// CheckBounds names the first flag out of its limits.
func CheckBounds(bounds []Bound) error {
	for _, b := range bounds {
		if b.Value < b.Low || b.Value > b.Top {
			return fmt.Errorf("invalid argument \"%d\" for \"--%s\" flag: want %d to %d", b.Value, b.Flag, b.Low, b.Top)
		}
	}
	return nil
}

// OpenOutput opens a result file to append to, before a run, so that a wrong
// path does not cost one. Without a path the result goes nowhere.
func OpenOutput(flag, path string) (io.WriteCloser, error) {
	if path == "" {
		return nopCloser{io.Discard}, nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, UsageError{fmt.Errorf("--%s: %w", flag, err)}
	}
	return file, nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// OldNames accepts the abbreviations that Python's argparse takes and
// documentation uses.
func OldNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "random-input":
		name = "random-input-len"
	case "random-output":
		name = "random-output-len"
	case "num-prompt":
		name = "num-prompts"
	case "profile-steps":
		name = "profile-num-steps"
	}
	return pflag.NormalizedName(name)
}
