package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/peterh/liner"
	"golang.org/x/term"
)

// IsTerminal tells whether both ends are terminals, so that a person can edit
// lines.
func IsTerminal(in io.Reader, out io.Writer) bool {
	return isTerminal(in) && isTerminal(out)
}

func isTerminal(end any) bool {
	file, ok := end.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Editor reads lines from the terminal of the process's standard input and output.
type Editor struct {
	state      *liner.State
	history    string // "": not kept
	notes      io.Writer
	interrupts <-chan os.Signal
	stop       func()          // ends the filter of its input
	prompted   chan lineResult // of a prompt that an interrupt left open; nil: none
}

// NewEditor takes over the terminal until Close. Lines are kept in the file
// history, unless it is ""; what is wrong with it is said to notes. An interrupt
// counts as Ctrl-C.
func NewEditor(history string, notes io.Writer, interrupts <-chan os.Signal) (*Editor, error) {
	e := &Editor{history: history, notes: notes, interrupts: interrupts}
	if err := e.open(); err != nil {
		return nil, err
	}
	e.state.SetCtrlCAborts(true)
	e.state.SetMultiLineMode(true)
	e.state.SetBeep(false)
	e.state.SetTabCompletionStyle(liner.TabPrints)
	e.state.SetCompleter(completeCommand)
	if history == "" {
		return e, nil
	}
	lines, err := readHistory(history)
	for _, line := range lines {
		e.state.AppendHistory(line)
	}
	e.keep(err)
	return e, nil
}

// open begins with the editing. The library reads os.Stdin and sets the mode of
// descriptor 0: between the two stands a pipe with the filter of pastes.
func (e *Editor) open() error {
	if !liner.TerminalSupported() {
		e.state, e.stop = liner.NewLiner(), func() {}
		return nil
	}
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	stdin := os.Stdin
	os.Stdin = from
	e.state = liner.NewLiner()
	os.Stdin = stdin
	go filterPastes(to, stdin)
	e.stop = func() { _ = from.Close() }
	return nil
}

// filterPastes copies up to the end of the input, or to the next key after the
// editor has closed its end.
func filterPastes(to *os.File, from io.Reader) {
	defer to.Close()
	var filter pasteFilter
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if _, failure := to.Write(filter.pass(nil, buffer[:n])); err != nil || failure != nil {
			return
		}
	}
}

// Close gives the terminal back. A prompt that is still open ends first: it sets
// the terminal's mode, too.
func (e *Editor) Close() error {
	e.stop()
	if e.prompted != nil && liner.TerminalSupported() {
		<-e.prompted
	}
	return e.state.Close()
}

// ReadLine implements Lines.
func (e *Editor) ReadLine(ctx context.Context, prompt string) (string, error) {
	if liner.TerminalSupported() {
		fmt.Fprint(os.Stdout, pasteOn)
		defer fmt.Fprint(os.Stdout, pasteOff)
	}
	e.prompt(prompt)
	select {
	case r := <-e.prompted:
		e.prompted = nil
		return e.edited(r)
	case <-e.interrupts:
		fmt.Fprintln(os.Stdout)
		return "", ErrInterrupted
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// prompt lets the library read a line. It can't be told to stop, so after an
// interrupt from elsewhere (the terminal's own is a key) it reads on.
func (e *Editor) prompt(prompt string) {
	if e.prompted != nil {
		fmt.Fprint(os.Stdout, prompt)
		return
	}
	e.prompted = make(chan lineResult, 1)
	go func(result chan<- lineResult) {
		line, err := e.state.Prompt(prompt)
		result <- lineResult{line, err}
	}(e.prompted)
}

func (e *Editor) edited(r lineResult) (string, error) {
	switch {
	case errors.Is(r.err, liner.ErrPromptAborted):
		return "", ErrInterrupted
	case r.err != nil:
		return "", r.err
	}
	if strings.TrimSpace(r.line) != "" {
		e.state.AppendHistory(r.line)
		if e.history != "" {
			e.keep(appendHistory(e.history, r.line))
		}
	}
	return withoutPictures(r.line), nil
}

// keep gives the history's file up after an error.
func (e *Editor) keep(err error) {
	if err != nil {
		e.history = ""
		fmt.Fprintf(e.notes, "lines are not kept for the next time: %v\n", err)
	}
}
