package top

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/minisgl/minisgl/go/openai"
)

// What a terminal is told.
const (
	screenOn  = "\x1b[?1049h\x1b[?25l" // another screen, without a cursor
	screenOff = "\x1b[?25h\x1b[?1049l"
	home      = "\x1b[H"
	clearLine = "\x1b[K"
	clearRest = "\x1b[J"
)

// Open and Close begin and end the use of a terminal's other screen.
func Open(o Options) { fmt.Fprint(o.Out, screenOn) }

// Close is Open's end.
func Close(o Options) { fmt.Fprint(o.Out, screenOff) }

// draw fills the screen; what doesn't fit is left out.
func draw(o Options, s *state) error {
	columns, rows := o.Size()
	lines := append(s.lines(o.Server, columns), "", "q quits")
	lines = lines[:min(len(lines), rows)]
	var screen strings.Builder
	screen.WriteString(home)
	for i, line := range lines {
		if i > 0 {
			screen.WriteString("\r\n")
		}
		screen.WriteString(cut(line, columns) + clearLine)
	}
	screen.WriteString(clearRest)
	_, err := fmt.Fprint(o.Out, screen.String())
	return err
}

// lines is the screen for a width.
func (s *state) lines(server *url.URL, columns int) []string {
	trouble := fmt.Sprintf("connecting to %s", server)
	if s.trouble != nil {
		trouble = s.trouble.Error()
	}
	if s.hello == nil || len(s.history) == 0 {
		return []string{trouble}
	}
	last, m := s.history[len(s.history)-1], s.hello.Model
	lines := []string{
		fmt.Sprintf("%s  %s, %d threads, %s  up %s  %s", m.Name, m.Device, m.Threads, m.DType, uptime(last.Uptime), last.Status),
		"",
	}
	lines = append(lines, s.curves(last, columns)...)
	lines = append(lines, s.bars(last, m, columns)...)
	lines = append(lines, s.counts(last)...)
	if s.trouble != nil {
		lines = append(lines, "", trouble)
	}
	return lines
}

const (
	labelWidth = 9
	valueWidth = 30 // right of a curve or a bar
)

func drawingWidth(columns int) int { return max(columns-labelWidth-valueWidth, 8) }

func row(label, drawing, value string) string {
	return strings.TrimRight(fmt.Sprintf("%-*s%s  %s", labelWidth, label, drawing, value), " ")
}

// curves shows what changes over time.
func (s *state) curves(last openai.ServerStats, columns int) []string {
	curve := func(of func(openai.ServerStats) float64) string {
		values := make([]float64, len(s.history))
		for i, stats := range s.history {
			values[i] = of(stats)
		}
		return sparkline(values, drawingWidth(columns))
	}
	return []string{
		row("prefill", curve(func(s openai.ServerStats) float64 { return s.PrefillRate }), fmt.Sprintf("%.1f tok/s", last.PrefillRate)),
		row("decode", curve(func(s openai.ServerStats) float64 { return s.DecodeRate }), fmt.Sprintf("%.1f tok/s", last.DecodeRate)),
		row("queued", curve(func(s openai.ServerStats) float64 { return float64(s.Queued) }), fmt.Sprintf("%d requests", last.Queued)),
	}
}

// bars shows what has a bound.
func (s *state) bars(last openai.ServerStats, m openai.StatsModel, columns int) []string {
	width, p := drawingWidth(columns), last.Pages
	return []string{
		row("running", bar(width, m.MaxRunning, last.Running, 0), fmt.Sprintf("%d of %d requests", last.Running, m.MaxRunning)),
		row("KV pages", bar(width, p.Total, p.InUse, p.Cached), fmt.Sprintf("█ %d used ▒ %d cached", p.InUse, p.Cached)),
		row("", strings.Repeat(" ", width), fmt.Sprintf("░ %d free of %d", p.Free, p.Total)),
	}
}

func (s *state) counts(last openai.ServerStats) []string {
	window := fmt.Sprintf("(last %.0f s)", s.hello.Window)
	return []string{
		row("TTFT", percentiles(last.TTFT), window),
		row("ITL", percentiles(last.ITL), window),
		"",
		row("cache", fmt.Sprintf("%.1f %% hits, %d nodes, %d tokens", 100*last.Cache.HitRate, last.Cache.Nodes, last.Cache.Tokens), ""),
		row("requests", fmt.Sprintf("%d started, %d finished, %d aborted, %d preemptions",
			last.Requests.Started, last.Requests.Finished, last.Requests.Aborted, last.Requests.Preemptions), ""),
		row("tokens", fmt.Sprintf("%d prompt (%d cached), %d generated", last.Tokens.Prompt, last.Tokens.Cached, last.Tokens.Completion), ""),
	}
}

func percentiles(p *openai.Percentiles) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprintf("P50 %.1f  P90 %.1f  P99 %.1f ms", p.P50, p.P90, p.P99)
}

var sparks = []rune("▁▂▃▄▅▆▇█")

// sparkline draws the last values, each a column, from 0 to the largest.
func sparkline(values []float64, width int) string {
	values = values[max(len(values)-width, 0):]
	top := 0.0
	for _, v := range values {
		top = max(top, v)
	}
	line := []rune(strings.Repeat(" ", width-len(values)))
	for _, v := range values {
		level := 0
		if top > 0 && v > 0 {
			level = min(int(v/top*float64(len(sparks))), len(sparks)-1)
		}
		line = append(line, sparks[level])
	}
	return string(line)
}

// bar draws the shares of used and of kept in total. What isn't zero is seen.
func bar(width, total, used, kept int) string {
	share := func(n int) int {
		if n <= 0 || total <= 0 {
			return 0
		}
		return max(n*width/total, 1)
	}
	full := min(share(used), width)
	half := min(share(kept), width-full)
	return strings.Repeat("█", full) + strings.Repeat("▒", half) + strings.Repeat("░", width-full-half)
}

func uptime(seconds float64) string {
	return (time.Duration(seconds) * time.Second).String()
}

// cut shortens a line to a width; all its characters are one column wide, but
// those of a model's name may be wider.
func cut(line string, width int) string {
	runes := []rune(line)
	return string(runes[:min(len(runes), width)])
}
