package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/minisgl/minisgl/bench/internal/record"
)

// Slice is a part of a run.
type Slice struct {
	Tokens   int // of successes that came in it
	InFlight int // most requests in flight at one time of it
}

// Timeline cuts a run into slices of one width, at most so many; it doubles the
// width, from a second on, until that is so.
func Timeline(records []record.Record, most int) (parts []Slice, width time.Duration) {
	if len(records) == 0 || most < 1 {
		return nil, time.Second
	}
	begin, end := records[0].Start, records[0].Done
	for i := range records {
		begin, end = min(begin, records[i].Start), max(end, records[i].Done)
	}
	width = time.Second
	for int((end-begin)/width) >= most {
		width *= 2
	}
	parts = make([]Slice, (end-begin)/width+1)
	for i := range records {
		for _, at := range records[i].Tokens {
			if records[i].OK() {
				parts[(at-begin)/width].Tokens++
			}
		}
	}
	now := 0
	changes := inFlight(records)
	for i, c := range changes {
		now += c.delta
		until := end
		if i+1 < len(changes) {
			until = changes[i+1].at
		}
		for s := (c.at - begin) / width; s <= (until-begin)/width; s++ {
			parts[s].InFlight = max(parts[s].InFlight, now)
		}
	}
	return parts, width
}

// change is a start or an end of a request.
type change struct {
	at    time.Duration
	delta int
}

// inFlight lists the starts and ends in their order. Where one request ends as
// another starts, the two were not in flight together.
func inFlight(records []record.Record) []change {
	changes := make([]change, 0, 2*len(records))
	for i := range records {
		changes = append(changes, change{records[i].Start, 1}, change{records[i].Done, -1})
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.delta, b.delta))
	})
	return changes
}
