package report

import (
	"io"

	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/record"
)

// Output is where results go: tables to a writer, a line of JSON to a file.
type Output struct {
	File     string // "" for none
	Details  bool   // add what was observed of each request to the line
	VLLM     bool   // the table in vLLM's layout instead of sglang's
	Timeline bool   // draw the run over time too

	file io.WriteCloser
}

// Define adds the flags of the file; more says what its default is.
func (o *Output) Define(f *pflag.FlagSet, more string) {
	f.StringVar(&o.File, "output-file", "", "append the result to this file, as a line of JSON"+more)
	f.BoolVar(&o.Details, "output-details", false, "add times, lengths, text and error of each request to it")
}

// Open opens the file, before a run, so that a wrong path does not cost one.
func (o *Output) Open() (err error) {
	o.file, err = program.OpenOutput("output-file", o.File)
	return err
}

// Close closes the file.
func (o *Output) Close() error { return o.file.Close() }

// Write writes the tables and the line of a result.
func (o *Output) Write(stdout io.Writer, r *Result, records []record.Record) error {
	table := WriteTable
	if o.VLLM {
		table = WriteVLLMTable
	}
	if err := table(stdout, r); err != nil {
		return err
	}
	if err := WriteNotes(stdout, r); err != nil {
		return err
	}
	if o.Timeline {
		if err := WriteTimeline(stdout, records); err != nil {
			return err
		}
	}
	if !o.Details {
		records = nil
	}
	return WriteJSON(o.file, r, records)
}
