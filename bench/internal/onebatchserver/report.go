package onebatchserver

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// result is a line of the result file, with sglang's keys. Times are in seconds;
// what is not known is null, or -1 where sglang has that.
type result struct {
	RunName       string   `json:"run_name"`
	BatchSize     int      `json:"batch_size"`
	InputLen      int      `json:"input_len"` // mean of the batch
	OutputLen     int      `json:"output_len"`
	Latency       float64  `json:"latency"`
	InputRate     float64  `json:"input_throughput"`
	OutputRate    *float64 `json:"output_throughput"`
	OverallRate   float64  `json:"overall_throughput"`
	LastTTFT      float64  `json:"last_ttft"`
	LastGen       float64  `json:"last_gen_throughput"`
	AcceptLength  float64  `json:"acc_length"`
	OutputTokens  int      `json:"total_output_tokens"`
	EarlyStopped  int      `json:"num_early_stopped"`
	SteadyRate    *float64 `json:"steady_state_output_throughput"`
	SteadySeconds *float64 `json:"steady_state_window_s"`
	CacheHits     *float64 `json:"cache_hit_rate"`
}

// newResult computes the figures of a batch. Output rates leave out the tokens up
// to the last first one, which belong to the prefill.
func newResult(b batch, inputTokens, outputLen int) *result {
	started := b.started()
	firstEnd, end := b.ended()
	r := &result{
		BatchSize: len(b), InputLen: inputTokens / len(b), OutputLen: outputLen, Latency: end.Seconds(), LastTTFT: started.Seconds(),
		InputRate: perSecond(inputTokens, started), OutputRate: b.rate(started, end), LastGen: -1, AcceptLength: -1,
		OverallRate: perSecond(inputTokens+b.total(), end), OutputTokens: b.total(), CacheHits: b.cacheHits(),
	}
	for i := range b {
		if b[i].finish == "stop" {
			r.EarlyStopped++
		}
	}
	if r.SteadyRate = b.rate(started, firstEnd); r.SteadyRate != nil {
		seconds := (firstEnd - started).Seconds()
		r.SteadySeconds = &seconds
	}
	return r
}

func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// print writes the lines of sglang's one-batch benchmark.
func (r *result) print(w io.Writer, ignoreEOS bool) error {
	var t strings.Builder
	fmt.Fprintf(&t, "batch size: %d\ninput_len: %d\noutput_len: %d\nlatency: %.2f s\n", r.BatchSize, r.InputLen, r.OutputLen, r.Latency)
	fmt.Fprintf(&t, "input throughput: %.2f tok/s\n", r.InputRate)
	if r.OutputLen != 1 {
		fmt.Fprintf(&t, "output throughput: %s tok/s\n", known(r.OutputRate, 2))
	}
	fmt.Fprintf(&t, "last_ttft: %.2f s\nlast generation throughput: %.2f tok/s\n", r.LastTTFT, r.LastGen)
	if r.AcceptLength > 0 {
		fmt.Fprintf(&t, "acc_length: %.2f \n", r.AcceptLength)
	}
	if r.CacheHits != nil {
		fmt.Fprintf(&t, "cache hit rate: %.4f\n", *r.CacheHits)
	}
	asked := r.BatchSize * r.OutputLen
	switch {
	case ignoreEOS && r.OutputTokens != asked:
		fmt.Fprintf(&t, "WARNING: %d tokens came of %d that were asked for; the figures are of those that came\n", r.OutputTokens, asked)
	case !ignoreEOS:
		fmt.Fprintf(&t, "total output tokens: %d (requested %d)\nearly-stopped requests: %d/%d\n", r.OutputTokens, asked, r.EarlyStopped, r.BatchSize)
		if r.SteadyRate != nil {
			fmt.Fprintf(&t, "steady-state output throughput: %.2f tok/s over a %.2f s full-batch window\n", *r.SteadyRate, *r.SteadySeconds)
		} else {
			t.WriteString("WARNING: no steady state: an answer ended before the last one began\n")
		}
	}
	_, err := io.WriteString(w, t.String())
	return err
}

const notKnown = "n/a"

func known(v *float64, digits int) string {
	if v == nil {
		return notKnown
	}
	return strconv.FormatFloat(*v, 'f', digits, 64)
}

// inputUse is the share of a prefill's throughput that costs are reckoned with.
const inputUse = 0.7

func (c *config) summary(results []*result) string {
	results = slices.Clone(results)
	slices.SortStableFunc(results, func(a, b *result) int { return a.InputLen - b.InputLen })
	text := fmt.Sprintf("\nInput lens: %s. Output lens: %s.", python(c.inputs), python(c.outs))
	if c.hitRate > 0 {
		text += fmt.Sprintf(" Cache hit rate: %.1f%%.", 100*c.hitRate)
	}
	header := []string{
		"batch size", "input len", "latency (s)", "input throughput (tok/s)", "output throughput (tok/s)", "acc length", "ITL (ms)",
		"input cost ($/1M)", "output cost ($/1M)", "cache hit rate",
	}
	if c.keepEOS {
		header = append(header, "steady output throughput (tok/s)", "steady ITL (ms)", "early stops")
	}
	rows := make([][]string, len(results))
	for i, r := range results {
		rows[i] = c.cells(r)
	}
	return text + "\n" + githubTable(header, rows)
}

// cells is a row of the report.
func (c *config) cells(r *result) []string {
	accept, itl, cost := notKnown, notKnown, notKnown
	if r.AcceptLength > 0 {
		accept = known(&r.AcceptLength, 2)
	}
	million := func(rate float64) string { return fmt.Sprintf("%.2f", 1e6/rate/3600*c.hourCost) }
	if r.OutputRate != nil {
		itl, cost = fmt.Sprintf("%.2f", 1000*float64(r.BatchSize) / *r.OutputRate), million(*r.OutputRate)
	}
	row := []string{
		strconv.Itoa(r.BatchSize), strconv.Itoa(r.InputLen), known(&r.Latency, 2), known(&r.InputRate, 2), known(r.OutputRate, 2), accept, itl,
		million(r.InputRate * inputUse), cost, known(r.CacheHits, 4),
	}
	if c.keepEOS {
		steady := notKnown
		if r.SteadyRate != nil {
			steady = fmt.Sprintf("%.2f", 1000*float64(r.BatchSize) / *r.SteadyRate)
		}
		row = append(row, known(r.SteadyRate, 2), steady, fmt.Sprintf("%d/%d", r.EarlyStopped, r.BatchSize))
	}
	return row
}

// python writes a list as Python does.
func python(list []int) string {
	parts := make([]string, len(list))
	for i, n := range list {
		parts[i] = strconv.Itoa(n)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// githubTable lays a table out as Python's tabulate does for GitHub: columns of
// numbers have six digits and their points in a line.
func githubTable(header []string, rows [][]string) string {
	columns := make([][]string, len(header))
	var rule strings.Builder
	for i, name := range header {
		cells := make([]string, len(rows))
		for j := range rows {
			cells[j] = rows[j][i]
		}
		columns[i] = column(name, cells)
		rule.WriteString("|" + strings.Repeat("-", len(columns[i][0])+2))
	}
	var out strings.Builder
	for j := range len(rows) + 1 {
		for i := range columns {
			out.WriteString("| " + columns[i][j] + " ")
		}
		out.WriteString("|\n")
		if j == 0 {
			out.WriteString(rule.String() + "|\n")
		}
	}
	return out.String()
}

// column pads a name and its cells to one width.
func column(name string, cells []string) []string {
	numbers := !slices.ContainsFunc(cells, func(s string) bool { _, err := strconv.ParseFloat(s, 64); return err != nil })
	if numbers {
		cells = alignPoints(cells)
	}
	width := len(name) + 2
	for _, cell := range cells {
		width = max(width, len(cell))
	}
	out := append([]string{name}, cells...)
	for i, cell := range out {
		pad := strings.Repeat(" ", width-len(cell))
		if numbers {
			out[i] = pad + cell
		} else {
			out[i] = cell + pad
		}
	}
	return out
}

func alignPoints(cells []string) []string {
	out, behind := make([]string, len(cells)), make([]int, len(cells))
	for i, cell := range cells {
		v, _ := strconv.ParseFloat(cell, 64) // checked by the caller
		out[i] = fmt.Sprintf("%.6g", v)
		if at := strings.IndexByte(out[i], '.'); at >= 0 {
			behind[i] = len(out[i]) - at
		}
	}
	for i := range out {
		out[i] += strings.Repeat(" ", slices.Max(behind)-behind[i])
	}
	return out
}
