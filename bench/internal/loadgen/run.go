// Package loadgen sends the requests of a benchmark and records what happens to
// each. It is an open loop: requests go out by a schedule of absolute deadlines,
// whether or not earlier ones were answered, unless a concurrency limit holds
// them back.
package loadgen

import (
	"context"
	"sync"
	"time"

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
}

// Run sends one request per entry of the schedule and returns, in that order,
// the records of those that were sent. When ctx is cancelled it sends no more,
// aborts the ones in flight and returns what there is.
func Run(ctx context.Context, backend Backend, cfg Config) []record.Record {
	r := &run{backend: backend, onDone: cfg.OnDone, begin: time.Now()}
	if cfg.MaxConcurrency > 0 {
		r.slots = make(chan struct{}, cfg.MaxConcurrency)
	}
	records := make([]*record.Record, len(cfg.Schedule))
	var wg sync.WaitGroup
	for i, due := range cfg.Schedule {
		if !sleepUntil(ctx, r.begin.Add(due)) {
			break
		}
		released := time.Since(r.begin)
		wg.Go(func() {
			rec := &record.Record{Index: i, Intended: due, Released: released, PromptTokens: -1}
			if r.send(ctx, rec) {
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
	slots   chan struct{}
	mu      sync.Mutex
	onDone  func(*record.Record)
}

// send waits for a slot, exchanges and decodes; false means it was never sent.
func (r *run) send(ctx context.Context, rec *record.Record) bool {
	if r.slots != nil {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return false
		}
	}
	if ctx.Err() != nil {
		return false
	}
	rec.Start = time.Since(r.begin)
	x := r.backend.Exchange(ctx, rec.Index)
	if r.slots != nil {
		<-r.slots
	}
	r.backend.Decode(x, r.begin, rec)
	if r.onDone != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.onDone(rec)
	}
	return true
}

// sleepUntil reports false if ctx ended first.
func sleepUntil(ctx context.Context, at time.Time) bool {
	wait := time.Until(at)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
