package curve

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/minisgl/minisgl/bench/internal/metrics"
)

const (
	plotWidth  = 8 * vg.Inch
	plotHeight = 9 * vg.Inch
	panels     = 3
)

// CheckPlotName returns an error unless path ends in a format that WritePlot knows.
func CheckPlotName(path string) error {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".svg", ".png":
		return nil
	}
	return fmt.Errorf("curve: %q: a plot's name ends in .svg or .png", path)
}

// WritePlot draws TTFT, TPOT and throughput over the load into a file.
func WritePlot(path string, axis Axis, points []Point) error {
	if err := CheckPlotName(path); err != nil {
		return err
	}
	all, err := draws(axis, points)
	if err != nil {
		return fmt.Errorf("curve: %w", err)
	}
	return Write(path, all)
}

// SVG draws the same as text for an HTML page.
func SVG(axis Axis, points []Point) ([]byte, error) {
	all, err := draws(axis, points)
	if err != nil {
		return nil, fmt.Errorf("curve: %w", err)
	}
	return render(all, ".svg")
}

// Write draws plots, one below the other, into a file whose name CheckPlotName takes.
func Write(path string, all []*plot.Plot) error {
	data, err := render(all, strings.ToLower(filepath.Ext(path)))
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("curve: %w", err)
	}
	return nil
}

func render(all []*plot.Plot, format string) ([]byte, error) {
	var out bytes.Buffer
	var err error
	if format == ".png" {
		canvas := vgimg.PngCanvas{Canvas: vgimg.New(plotWidth, plotHeight)}
		tile(draw.New(canvas), all)
		_, err = canvas.WriteTo(&out)
	} else {
		canvas := vgsvg.New(plotWidth, plotHeight)
		tile(draw.New(canvas), all)
		_, err = canvas.WriteTo(&out)
	}
	if err != nil {
		return nil, fmt.Errorf("curve: %w", err)
	}
	return out.Bytes(), nil
}

func tile(canvas draw.Canvas, all []*plot.Plot) {
	tiles := draw.Tiles{Rows: len(all), Cols: 1, PadY: vg.Millimeter * 5}
	for i, p := range all {
		p.Draw(tiles.At(canvas, 0, i))
	}
}

func draws(axis Axis, points []Point) ([]*plot.Plot, error) {
	latency := func(of func(*Point) metrics.Stats, pick func(metrics.Stats) float64) plotter.XYs {
		var xys plotter.XYs
		for i := range points {
			if s := of(&points[i]); s.Count > 0 {
				xys = append(xys, plotter.XY{X: points[i].Load, Y: pick(s)})
			}
		}
		return xys
	}
	p99 := func(s metrics.Stats) float64 { return s.P99 }
	median := func(s metrics.Stats) float64 { return s.Median }
	var output plotter.XYs
	for i := range points {
		output = append(output, plotter.XY{X: points[i].Load, Y: points[i].OutputThroughput})
	}
	ttft := func(p *Point) metrics.Stats { return p.TTFT }
	tpot := func(p *Point) metrics.Stats { return p.TPOT }
	all := make([]*plot.Plot, 0, panels)
	for _, panel := range []struct {
		title, unit string
		lines       []any
	}{
		{"Time to first token", "ms", []any{"median", latency(ttft, median), "P99", latency(ttft, p99)}},
		{"Time per output token", "ms", []any{"median", latency(tpot, median), "P99", latency(tpot, p99)}},
		{"Output throughput", "tokens/s", []any{"all requests", output}},
	} {
		lines := panel.lines
		for i := 1; i < len(panel.lines); i += 2 {
			if xys, ok := panel.lines[i].(plotter.XYs); !ok || len(xys) == 0 {
				lines = nil // a panel without a sample stays empty
			}
		}
		p, err := Lines(panel.title, string(axis), panel.unit, lines...)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// Lines returns a plot of named lines, given as plotutil.AddLinePoints takes them, with a
// legend above them.
func Lines(title, x, y string, lines ...any) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	if err := plotutil.AddLinePoints(p, lines...); err != nil {
		return nil, err
	}
	p.Y.Min, p.Y.Max = 0, 1.4*p.Y.Max // with room for the legend
	return p, nil
}
