// Package scrape reads a server's /metrics (Prometheus' text format) during a
// benchmark.
package scrape

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/minisgl/minisgl/bench/internal/loadgen"
)

// Sample has the value of each metric, summed over its labels, by name.
type Sample map[string]float64

// Parse reads a page of metrics. Lines that are not "name{labels} value" are
// skipped; so are the buckets of histograms.
func Parse(page []byte) Sample {
	sample := Sample{}
	scanner := bufio.NewScanner(bytes.NewReader(page))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := strings.TrimSpace(scanner.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, rest := line, ""
		if at := strings.IndexAny(line, "{ \t"); at > 0 {
			name, rest = line[:at], line[at:]
		}
		if at := strings.LastIndexByte(rest, '}'); at >= 0 {
			rest = rest[at+1:]
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 || strings.HasSuffix(name, "_bucket") {
			continue
		}
		if v, err := strconv.ParseFloat(fields[0], 64); err == nil {
			sample[name] += v
		}
	}
	return sample
}

// find returns the first of the names that the sample has, after any prefix that
// ends in a colon, such as sglang: or vllm:.
func (s Sample) find(names ...string) (float64, bool) {
	for _, name := range names {
		for key, v := range s {
			if key == name || strings.HasSuffix(key, ":"+name) {
				return v, true
			}
		}
	}
	return 0, false
}

// Queue returns the requests that wait at the server.
func (s Sample) Queue() (float64, bool) {
	return s.find("num_queue_reqs", "num_requests_waiting", "waiting_requests")
}

// Running returns the requests that run at the server.
func (s Sample) Running() (float64, bool) {
	return s.find("num_running_reqs", "num_requests_running", "running_requests")
}

// Change is a metric that differs between two samples.
type Change struct {
	Name          string
	Before, After float64
}

// Diff returns what changed, by name.
func Diff(before, after Sample) []Change {
	var changes []Change
	for name, v := range after {
		if before[name] != v {
			changes = append(changes, Change{name, before[name], v})
		}
	}
	sort.Slice(changes, func(i, j int) bool { return changes[i].Name < changes[j].Name })
	return changes
}

const fetchWait = 5 * time.Second

// Fetch reads the metrics of the server at base; nil if it has none.
func Fetch(ctx context.Context, client *loadgen.HTTP, base string) Sample {
	ctx, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	status, page, err := client.Fetch(ctx, http.MethodGet, base+"/metrics", nil)
	if err != nil || status != http.StatusOK {
		return nil
	}
	return Parse(page)
}

// Load is what a server said of its queue and its prefix cache over a time.
type Load struct {
	Samples              int
	MaxQueue, MeanQueue  float64
	MaxRunning, sumQueue float64
	Prompt, Cached       float64 // prompt tokens of that time, and of them those found in the cache; 0 if the server does not tell
}

// HitRate returns the share of prompt tokens found in the cache; false if it is not known.
func (l *Load) HitRate() (float64, bool) {
	if l.Prompt <= 0 {
		return 0, false
	}
	return l.Cached / l.Prompt, true
}

// counters returns the prompt tokens of the server's life, and those found in its cache.
func (s Sample) counters() (prompt, cached float64) {
	prompt, _ = s.find("prompt_tokens_total")
	cached, ok := s.find("cached_tokens_total", "prefix_cache_hits_total")
	if !ok {
		return 0, 0
	}
	return prompt, cached
}

// Watch samples the server each interval until stop is called, which returns
// what was seen.
func Watch(ctx context.Context, client *loadgen.HTTP, base string, interval time.Duration) (stop func() Load) {
	parent := context.WithoutCancel(ctx)
	ctx, cancel := context.WithCancel(ctx)
	var load Load
	prompt, cached := Fetch(ctx, client, base).counters()
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				load.add(Fetch(ctx, client, base))
			}
		}
	})
	return func() Load {
		cancel()
		wg.Wait()
		load.Prompt, load.Cached = Fetch(parent, client, base).counters()
		load.Prompt, load.Cached = load.Prompt-prompt, load.Cached-cached
		return load
	}
}

func (l *Load) add(s Sample) {
	queue, ok := s.Queue()
	if !ok {
		return
	}
	running, _ := s.Running()
	l.Samples++
	l.sumQueue += queue
	l.MeanQueue = l.sumQueue / float64(l.Samples)
	l.MaxQueue, l.MaxRunning = max(l.MaxQueue, queue), max(l.MaxRunning, running)
}
