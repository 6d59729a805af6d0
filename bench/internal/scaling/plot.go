package scaling

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/minisgl/minisgl/bench/internal/curve"
)

// panel is one plot: which cells, by what they are ordered, by what they are told apart.
type panel struct {
	title, axis string
	of          func(cell) bool
	x           func(cell) int
	line        func(cell) string
}

func byThreads(c cell) string { return fmt.Sprintf("%d threads", c.threads) }

var allPanels = []panel{
	{"over threads", "threads", func(c cell) bool { return c.batch == 0 || c.depth == shortPrompt }, func(c cell) int { return c.threads }, cell.name},
	{"decoding over the batch, behind 32 tokens", "requests", func(c cell) bool { return c.batch > 0 && c.depth == shortPrompt }, func(c cell) int { return c.batch }, byThreads},
	{"decoding of one request over its depth", "tokens before", func(c cell) bool { return c.batch == 1 }, func(c cell) int { return c.depth }, byThreads},
}

// draw writes the plots of a model's cells into a file.
func draw(path, model string, cells []cell) error {
	all := make([]*plot.Plot, 0, len(allPanels))
	for _, panel := range allPanels {
		p, err := curve.Lines(model+", "+panel.title, panel.axis, "tokens/s", panel.lines(cells)...)
		if err != nil {
			return fmt.Errorf("scaling: %w", err)
		}
		all = append(all, p)
	}
	return curve.Write(path, all)
}

// lines returns names and points in turn, as plotutil wants them.
func (p *panel) lines(cells []cell) []any {
	points := map[string]plotter.XYs{}
	var names []string
	for _, c := range cells {
		if !p.of(c) {
			continue
		}
		name := p.line(c)
		if points[name] == nil {
			names = append(names, name)
		}
		points[name] = append(points[name], plotter.XY{X: float64(p.x(c)), Y: c.speed})
	}
	var out []any
	for _, name := range names {
		out = append(out, name, points[name])
	}
	return out
}
