package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/minisgl/minisgl/bench/internal/record"
)

const (
	noteWidth      = 53 // width of the second column, where long texts wrap: 80 with the first
	fewRequests    = 100
	notRetokenized = "not retokenized: no tokenizer in use"
)

// WriteNotes writes a second table with what sglang's table leaves out: failures,
// offered and achieved load, latency that includes the wait to be sent, and how
// the figures came about.
func WriteNotes(w io.Writer, r *Result) error {
	rows := [][]string{
		{"Requests sent / failed", fmt.Sprintf("%d / %d", r.Sent, r.Failed)},
	}
	if r.Interrupted {
		rows = append(rows, []string{"Partial result", fmt.Sprintf("interrupted: %d of %d requests were sent, the table covers those that finished", r.Sent, r.NumRequests)})
	}
	for _, f := range r.Failures {
		rows = append(rows, []string{"Failed: " + f.Label, fmt.Sprintf("%d, first: %s", f.Count, printable(f.First))})
	}
	rows = append(rows,
		[]string{"Request rate", rates(r)},
		[]string{"P99 E2E with queueing", queued(r)},
		[]string{"Client lag", fmt.Sprintf("at most %.2f ms behind the schedule", float64(r.MaxLag)/float64(time.Millisecond))},
		[]string{"Token counts", sources(r)},
		[]string{"Retokenized count", cmp.Or(r.Retokenizer, notRetokenized)},
	)
	rows = append(rows, promptNotes(r)...)
	if r.ShortOutputs > 0 {
		asked := "tokens asked for"
		if r.MaxTokens > 0 {
			asked = fmt.Sprintf("the %d tokens asked for", r.MaxTokens)
		}
		rows = append(rows, []string{"Short outputs", fmt.Sprintf("%d answers have fewer than %s", r.ShortOutputs, asked)})
	}
	if r.Completed > 0 && r.Completed < fewRequests {
		rows = append(rows, []string{"P99", fmt.Sprintf("close to the maximum: %d requests are too few to tell (%d or more)", r.Completed, fewRequests)})
	}
	for _, note := range r.Notes {
		rows = append(rows, []string{note[0], printable(note[1])})
	}
	return writeRows(w, rows)
}

// promptNotes tells what the server counted beside the load generator.
func promptNotes(r *Result) [][]string {
	var rows [][]string
	if r.InputCounted && r.ServerInput > 0 && r.ServerInput != r.InputTokens {
		rows = append(rows, []string{"Prompt tokens", fmt.Sprintf("the server counted %d; the table has the dataset's own count, without what a chat template adds", r.ServerInput)})
	}
	if prompt, rate := r.cached(); r.CachedKnown && prompt > 0 {
		rows = append(rows, []string{"Cached prompt tokens", fmt.Sprintf("%d of %d (%.1f%%)", r.CachedTokens, prompt, 100*rate)})
	}
	return rows
}

func writeRows(w io.Writer, rows [][]string) error {
	t := tablewriter.NewTable(w,
		tablewriter.WithRowAlignment(tw.AlignLeft),
		tablewriter.WithHeaderAlignment(tw.AlignLeft),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithRowAutoWrap(tw.WrapNormal),
		tablewriter.WithColumnWidths(tw.NewMapper[int, int]().Set(1, noteWidth)),
	)
	t.Header("Not in the table above", "Value")
	if err := t.Bulk(rows); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := t.Render(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// rates compares the load that was wanted, drawn by the schedule, and achieved.
func rates(r *Result) string {
	if r.Trace {
		return fmt.Sprintf("recorded times; this trace %.2f req/s, achieved %.2f", r.ScheduledRate, r.SentRate)
	}
	if math.IsInf(r.Rate, 1) {
		if r.SentRate == 0 {
			return "all at once"
		}
		return fmt.Sprintf("all at once; sent at %.2f req/s", r.SentRate)
	}
	if r.SentRate == 0 || r.ScheduledRate == 0 {
		return "offered " + pythonFloat(r.Rate) + " req/s; too few requests to tell what was achieved"
	}
	return fmt.Sprintf("offered %s req/s (this schedule: %.2f), achieved %.2f", pythonFloat(r.Rate), r.ScheduledRate, r.SentRate)
}

// queued is the latency that a user sees who comes when the schedule says.
func queued(r *Result) string {
	if r.QueuedE2E.Count == 0 {
		return noValue
	}
	return fmt.Sprintf("%.2f ms, from the intended start", r.QueuedE2E.P99)
}

// sources lists how tokens were counted, most exact first.
func sources(r *Result) string {
	var kinds []record.TokenSource
	for kind := range r.Sources {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	var parts []string
	for _, kind := range kinds {
		text := kind.String()
		if len(kinds) > 1 {
			text += fmt.Sprintf(" (%d requests)", r.Sources[kind])
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return noValue
	}
	return strings.Join(parts, "; ")
}

// printable keeps control characters in server text from reaching the terminal.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if strconv.IsPrint(c) {
			return c
		}
		return ' '
	}, text)
}
