// Package compare decides whether one server, or one version of it, is slower
// than another.
package compare

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/minisgl/minisgl/bench/internal/report"
)

// run is what matters of one line of a result file.
type run struct {
	Backend   string  `json:"backend"`
	Dataset   string  `json:"dataset_name"`
	Model     string  `json:"model"`
	Rate      any     `json:"request_rate"`
	Limit     *int    `json:"max_concurrency"`
	Completed int     `json:"completed"`
	Sent      int     `json:"sent"`
	Failed    int     `json:"failed"`
	Output    int     `json:"total_output_tokens"`
	Prompt    int     `json:"server_prompt_tokens"`
	Cached    []int   `json:"cached_tokens"`
	MeanTTFT  float64 `json:"mean_ttft_ms"`
	P99TTFT   float64 `json:"p99_ttft_ms"`
	Lag       float64 `json:"max_client_lag_ms"`

	figures map[string]json.RawMessage
}

// maxLine bounds a line of a result file, in bytes; with details they are long.
const maxLine = 1 << 30

// readRuns reads the result lines of a file.
func readRuns(path string) ([]*run, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, maxLine)
	var runs []*run
	for n := 1; scanner.Scan(); n++ {
		line := bytes.TrimSpace(scanner.Bytes())
		if len(line) == 0 {
			continue
		}
		r, err := parseRun(line)
		if err != nil {
			return nil, fmt.Errorf("compare: %s, line %d: %w", path, n, err)
		}
		runs = append(runs, r)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("compare: %s: %w", path, err)
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("compare: %s has no results", path)
	}
	return runs, nil
}

// parseRun accepts the Infinity that sglang's own client writes.
func parseRun(line []byte) (*run, error) {
	line = bytes.ReplaceAll(line, []byte(`"request_rate": Infinity`), []byte(`"request_rate": "inf"`))
	r := &run{}
	if err := json.Unmarshal(line, &r.figures); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(line, r); err != nil {
		return nil, err
	}
	if _, ok := r.figures["mean_ttft_ms"]; !ok {
		return nil, fmt.Errorf("not a result of a serving benchmark: no mean_ttft_ms")
	}
	return r, nil
}

// toRun takes the same way as a line of a file.
func toRun(result *report.Result) (*run, error) {
	var line bytes.Buffer
	if err := report.WriteJSON(&line, result, nil); err != nil {
		return nil, err
	}
	r, err := parseRun(line.Bytes())
	if err == nil && result.CachedKnown {
		r.Cached = []int{result.CachedTokens}
	}
	return r, err
}

// figure returns a figure; false if the run has none.
func (r *run) figure(key string) (float64, bool) {
	var v *float64
	if json.Unmarshal(r.figures[key], &v) != nil || v == nil {
		return 0, false
	}
	return *v, true
}

// hitRate returns the share of prompt tokens found in the server's cache.
func (r *run) hitRate() (float64, bool) {
	if r.Prompt == 0 || r.Cached == nil {
		return 0, false
	}
	sum := 0
	for _, n := range r.Cached {
		sum += n
	}
	return float64(sum) / float64(r.Prompt), true
}
