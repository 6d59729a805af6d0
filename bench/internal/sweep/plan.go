// Package sweep measures a server under rising loads and finds where it
// saturates.
package sweep

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/minisgl/minisgl/bench/internal/curve"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/scrape"
	"github.com/minisgl/minisgl/bench/internal/serving"
)

// step is one run of a sweep.
type step struct {
	Load   float64 `json:"load"` // rate or concurrency
	Repeat int     `json:"repeat"`
	offer  serving.Load
}

// outcome is a step that was run, a line of the runs file.
type outcome struct {
	step
	Config  string          `json:"config"` // what all steps have in common
	Seed    uint32          `json:"seed"`
	Server  scrape.Load     `json:"server"`
	Summary metrics.Summary `json:"summary"`
}

// plan lists the steps, lightest load first, its repeats one after the other.
// Each has a seed of its own, so that no prompt is found in a cache that an
// earlier step filled, unless samePrompts asks for just that.
func (c *config) plan() []step {
	loads := c.loads()
	var steps []step
	for _, load := range loads {
		for repeat := range c.repeats {
			steps = append(steps, step{Load: load, Repeat: repeat, offer: c.offer(load, repeat)})
		}
	}
	return steps
}

// offer is what one run sends.
func (c *config) offer(load float64, repeat int) serving.Load {
	offer := c.o.Load
	if c.axis() == curve.Rates {
		offer.Rate = load
	} else {
		offer.Rate, offer.MaxConcurrency = math.Inf(1), int(load)
	}
	if c.seconds > 0 && c.axis() == curve.Rates {
		offer.NumPrompts = min(max(int(load*c.seconds), 1), program.MaxRequests)
	}
	if !c.samePrompts {
		offer.Seed += seedOf(load, repeat)
	}
	return offer
}

// seedOf does not depend on the other steps, so that a sweep can be extended.
func seedOf(load float64, repeat int) uint32 {
	hash := fnv.New32a()
	fmt.Fprintf(hash, "%g %d", load, repeat)
	return hash.Sum32()
}

func (c *config) loads() []float64 {
	var loads []float64
	for _, r := range c.rates {
		loads = append(loads, float64(r))
	}
	for _, n := range c.concurrencies {
		loads = append(loads, float64(n))
	}
	slices.Sort(loads)
	return slices.Compact(loads)
}

func (c *config) axis() curve.Axis {
	if len(c.rates) > 0 {
		return curve.Rates
	}
	return curve.Concurrencies
}

func (c *config) runsFile() string { return filepath.Join(c.dir, "runs.jsonl") }

// maxRun bounds a line of the runs file, in bytes.
const maxRun = 1 << 20

// finished reads the outcomes of earlier calls.
func (c *config) finished() ([]outcome, error) {
	file, err := os.Open(c.runsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	defer file.Close()
	var done []outcome
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, maxRun)
	for scanner.Scan() {
		var o outcome
		if err := json.Unmarshal(scanner.Bytes(), &o); err != nil {
			continue // a line that an interrupt cut
		}
		if o.Config != c.fingerprint {
			return nil, fmt.Errorf("sweep: %s holds runs with other settings (%s): use another --output-dir, or the same settings", c.runsFile(), o.Config)
		}
		done = append(done, o)
	}
	return done, scanner.Err()
}

// save appends an outcome to the runs file.
func (c *config) save(o *outcome) error {
	file, err := os.OpenFile(c.runsFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	data, err := json.Marshal(o)
	if err == nil {
		_, err = file.Write(append(data, '\n'))
	}
	return errors.Join(err, file.Close())
}

// points merges the repeats of each load.
func points(outcomes []outcome) []curve.Point {
	var out []curve.Point
	byLoad := map[float64][]metrics.Summary{}
	for _, o := range outcomes {
		byLoad[o.Load] = append(byLoad[o.Load], o.Summary)
	}
	for load, runs := range byLoad {
		out = append(out, curve.Point{Load: load, Summary: merge(runs)})
	}
	slices.SortFunc(out, func(a, b curve.Point) int { return cmp.Compare(a.Load, b.Load) })
	return out
}

// merge adds up counts and takes the median of each figure.
func merge(runs []metrics.Summary) metrics.Summary {
	m := runs[0]
	m.Sent, m.Completed, m.Failed = 0, 0, 0
	for i := range runs {
		m.Sent += runs[i].Sent
		m.Completed += runs[i].Completed
		m.Failed += runs[i].Failed
	}
	pick := func(of func(*metrics.Summary) float64) float64 {
		values := make([]float64, len(runs))
		for i := range runs {
			values[i] = of(&runs[i])
		}
		slices.Sort(values)
		return metrics.Percentile(values, 50)
	}
	m.RequestThroughput = pick(func(s *metrics.Summary) float64 { return s.RequestThroughput })
	m.OutputThroughput = pick(func(s *metrics.Summary) float64 { return s.OutputThroughput })
	m.Concurrency = pick(func(s *metrics.Summary) float64 { return s.Concurrency })
	for _, of := range []func(*metrics.Summary) *metrics.Stats{
		func(s *metrics.Summary) *metrics.Stats { return &s.TTFT }, func(s *metrics.Summary) *metrics.Stats { return &s.TPOT },
		func(s *metrics.Summary) *metrics.Stats { return &s.ITL }, func(s *metrics.Summary) *metrics.Stats { return &s.E2E },
	} {
		of(&m).Mean = pick(func(s *metrics.Summary) float64 { return of(s).Mean })
		of(&m).Median = pick(func(s *metrics.Summary) float64 { return of(s).Median })
		of(&m).P99 = pick(func(s *metrics.Summary) float64 { return of(s).P99 })
	}
	return m
}
