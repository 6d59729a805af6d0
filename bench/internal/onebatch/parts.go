package onebatch

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/minisgl/minisgl/go/llm"
)

// partNames are the parts of a forward pass in the order of the table. Others
// follow them by name.
var partNames = []string{"attention", "mlp", "norm", "head", "sampling", "embedding"}

// between is the part of a forward pass that is in no operation: planning the
// operations, handing them to the device, fetching the tokens.
const between = "between operations"

// parts are seconds by the part of a forward pass.
type parts map[string]float64

// add adds the operations of one forward pass that took so many seconds.
func (p parts) add(times []llm.OpTime, seconds float64) {
	for _, op := range times {
		p[op.Part] += op.Time.Seconds()
		seconds -= op.Time.Seconds()
	}
	p[between] += max(seconds, 0)
}

// mean divides by the number of passes; without one, or untimed, there are no parts.
func (p parts) mean(passes int) parts {
	if len(p) == 0 || passes == 0 {
		return nil
	}
	out := make(parts, len(p))
	for name, seconds := range p {
		out[name] = seconds / float64(passes)
	}
	return out
}

func (p parts) total() float64 {
	sum := 0.0
	for _, seconds := range p {
		sum += seconds
	}
	return sum
}

// cells are the milliseconds and the share of one part.
func (p parts) cells(name string) []string {
	seconds, ok := p[name]
	if !ok {
		return []string{"", ""}
	}
	return []string{fmt.Sprintf("%.3f", 1000*seconds), fmt.Sprintf("%.1f%%", 100*seconds/max(p.total(), 1e-12))}
}

// writeParts writes where the time of the prefill and of a decode step went.
func writeParts(w io.Writer, prefill, decode parts) error {
	seen := maps.Clone(prefill)
	maps.Copy(seen, decode)
	names := slices.Clone(partNames)
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if !slices.Contains(names, name) && name != between {
			names = append(names, name)
		}
	}
	t := tablewriter.NewTable(w, tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithRowAlignment(tw.AlignRight))
	t.Header("part of a forward pass", "prefill (ms)", "share", "decode step, mean (ms)", "share")
	for _, name := range append(names, between) {
		if _, ok := seen[name]; !ok {
			continue
		}
		if err := t.Append(slices.Concat([]string{name}, prefill.cells(name), decode.cells(name))); err != nil {
			return fmt.Errorf("onebatch: %w", err)
		}
	}
	return t.Render()
}
