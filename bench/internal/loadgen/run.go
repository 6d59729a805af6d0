// Package loadgen sends the requests of a benchmark and records what happens to
// each. It is an open loop: requests go out by a schedule of absolute deadlines,
// whether or not earlier ones were answered, unless a concurrency limit holds
// them back.
package loadgen

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/minisgl/minisgl/bench/internal/ontime"
	"github.com/minisgl/minisgl/bench/internal/record"
)

// Backend sends requests of one API. Both methods are called by many goroutines.
type Backend interface {
	// Exchange sends request index and reads its answer to the end without
	// decoding it, so that the time stamps of other requests do not wait for it.
	Exchange(ctx context.Context, index int) *Exchange
	// Decode fills the record from the answer; begin is the run's time zero.
	Decode(x *Exchange, begin time.Time, rec *record.Record)
}

// Config is one run.
type Config struct {
	Schedule       []time.Duration      // when each request is due, from the start of the run
	MaxConcurrency int                  // most requests in flight; 0 means no limit
	OnDone         func(*record.Record) // called for each finished request, one at a time; may be nil
	// After, if not nil, names for each request an earlier one whose end it waits
	// for, or -1. It then counts as intended from that end, if that is later.
	After []int
}

// atOnce counts the requests that are sent together at the beginning.
func (c *Config) atOnce() int {
	n := 0
	for n < len(c.Schedule) && c.Schedule[n] <= 0 {
		n++
	}
	if c.MaxConcurrency > 0 {
		return min(n, c.MaxConcurrency)
	}
	return n
}

// Follower is a Backend whose requests can depend on earlier answers.
type Follower interface {
	// Follow is called before request index is sent, with the answer to the earlier one that it waited for.
	Follow(index, earlier int, answer *record.Record)
}

// Preparer is a Backend that can encode requests and open connections before the
// run begins, so that this work is not in any latency.
type Preparer interface {
	// Prepare is told how many requests there are, and how many of them come at once at the beginning.
	Prepare(ctx context.Context, count, atOnce int)
}

// gcPercent is how much the heap may grow, in percent, between two garbage
// collections of a run: they take CPU time from the client and from servers on
// the same machine.
const gcPercent = 400

// Run sends one request per entry of the schedule and returns, in that order,
// the records of those that were sent. When ctx is cancelled it sends no more,
// aborts the ones in flight and returns what there is.
func Run(ctx context.Context, backend Backend, cfg Config) []record.Record {
	if p, ok := backend.(Preparer); ok {
		p.Prepare(ctx, len(cfg.Schedule), cfg.atOnce())
	}
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	runtime.GC() // what came before costs this run nothing
	r := &run{backend: backend, onDone: cfg.OnDone, begin: time.Now()}
	if cfg.MaxConcurrency > 0 {
		r.slots = &slots{free: cfg.MaxConcurrency}
	}
	records := make([]*record.Record, len(cfg.Schedule))
	r.ends = make([]chan struct{}, len(cfg.Schedule))
	for i := range r.ends {
		r.ends[i] = make(chan struct{})
	}
	var wg sync.WaitGroup
	for i, due := range cfg.Schedule {
		if !ontime.Wait(ctx, r.begin.Add(due)) {
			break
		}
		rec := &record.Record{Index: i, Intended: due, Released: time.Since(r.begin), InputLen: -1, PromptTokens: -1, CachedTokens: -1, Retokenized: -1}
		earlier := -1
		if cfg.After != nil && cfg.After[i] < i {
			earlier = cfg.After[i]
		}
		var turn <-chan struct{}
		if r.slots != nil && earlier < 0 {
			turn = r.slots.turn() // here, for turns to be in the order of the schedule
		}
		wg.Go(func() {
			defer close(r.ends[i])
			if earlier >= 0 {
				if !r.follow(ctx, rec, records, earlier) {
					return
				}
				if r.slots != nil {
					turn = r.slots.turn()
				}
			}
			if r.send(ctx, rec, turn) {
				records[i] = rec
			}
		})
	}
	wg.Wait()
	sent := make([]record.Record, 0, len(records))
	for _, rec := range records {
		if rec != nil {
			sent = append(sent, *rec)
		}
	}
	return sent
}

type run struct {
	backend Backend
	begin   time.Time
	slots   *slots
	ends    []chan struct{} // closed as each request ends
	mu      sync.Mutex
	onDone  func(*record.Record)
}

// follow waits for the end of an earlier request; false means ctx ended first.
func (r *run) follow(ctx context.Context, rec *record.Record, records []*record.Record, earlier int) bool {
	select {
	case <-r.ends[earlier]:
	case <-ctx.Done():
		return false
	}
	before := records[earlier]
	if before == nil {
		return false // it was never sent: the run is over
	}
	if before.Done > rec.Intended {
		rec.Intended, rec.Released = before.Done, max(rec.Released, before.Done)
	}
	if f, ok := r.backend.(Follower); ok {
		f.Follow(rec.Index, earlier, before)
	}
	return true
}

// send waits for its turn, if it has to, exchanges and decodes; false means it
// was never sent.
func (r *run) send(ctx context.Context, rec *record.Record, turn <-chan struct{}) bool {
	if turn != nil {
		select {
		case <-turn:
		case <-ctx.Done():
			return false
		}
	}
	if ctx.Err() != nil {
		return false
	}
	rec.Start = time.Since(r.begin)
	x := r.backend.Exchange(ctx, rec.Index)
	if turn != nil {
		r.slots.release()
	}
	r.backend.Decode(x, r.begin, rec)
	if r.onDone != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.onDone(rec)
	}
	return true
}
