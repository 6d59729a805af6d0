package report

import (
	"fmt"
	"io"
)

// Offline is the result of a run without a server. The JSON keys are sglang's.
type Offline struct {
	Backend           string  `json:"backend"`
	Successful        int     `json:"successful_requests"`
	Seconds           float64 `json:"total_latency"`
	InputTokens       int     `json:"total_input_tokens"`
	OutputTokens      int     `json:"total_output_tokens"`
	RequestThroughput float64 `json:"request_throughput"`
	InputThroughput   float64 `json:"input_throughput"`
	OutputThroughput  float64 `json:"output_throughput"`
	TotalThroughput   float64 `json:"total_throughput"`
	LastGen           float64 `json:"last_gen_throughput"` // tokens per second near the end
	Bandwidth         float64 `json:"-"`                   // GB/s that the memory could give; 0: not known
	KVBytes           float64 `json:"kv_bytes"`            // that decoding reads of the KV cache: for each token all before it
}

// Complete computes the throughputs from the counts.
func (r *Offline) Complete() {
	if r.Seconds <= 0 {
		return
	}
	r.RequestThroughput = float64(r.Successful) / r.Seconds
	r.InputThroughput = float64(r.InputTokens) / r.Seconds
	r.OutputThroughput = float64(r.OutputTokens) / r.Seconds
	r.TotalThroughput = float64(r.InputTokens+r.OutputTokens) / r.Seconds
}

// WriteOffline writes the table of sglang's offline throughput benchmark.
func WriteOffline(w io.Writer, r *Offline) error {
	t := &table{}
	t.WriteByte('\n')
	t.title(" Offline Throughput Benchmark Result ", '=')
	t.text("Backend:", r.Backend)
	t.count("Successful requests:", r.Successful)
	t.number("Benchmark duration (s):", r.Seconds, true)
	t.count("Total input tokens:", r.InputTokens)
	t.count("Total generated tokens:", r.OutputTokens)
	t.number("Last generation throughput (tok/s):", r.LastGen, true)
	t.number("Request throughput (req/s):", r.RequestThroughput, true)
	t.number("Input token throughput (tok/s):", r.InputThroughput, true)
	t.number("Output token throughput (tok/s):", r.OutputThroughput, true)
	t.number("Total token throughput (tok/s):", r.TotalThroughput, true)
	t.title("", '=')
	if r.Seconds > 0 {
		fmt.Fprintf(t, "Decoding reads %.1f GB of keys and values: %.1f GB/s over the whole run", r.KVBytes/1e9, r.KVBytes/1e9/r.Seconds)
		if r.Bandwidth > 0 {
			fmt.Fprintf(t, ", %.0f %% of %.0f GB/s", r.KVBytes/1e7/r.Seconds/r.Bandwidth, r.Bandwidth)
		}
		t.WriteString(".\n")
	}
	_, err := io.WriteString(w, t.String())
	return err
}
