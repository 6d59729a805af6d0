package shell

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxInput bounds what is read from a pipe, a message, and a file that /load
// reads: 32 MiB.
const MaxInput = 32 << 20

// ErrInterrupted is returned for a line at which Ctrl-C was pressed.
var ErrInterrupted = errors.New("interrupted")

// Lines is where the user's lines come from.
type Lines interface {
	// ReadLine returns the next line without its end; io.EOF after the last one,
	// ErrInterrupted, or ctx's error. It may only be called once at a time.
	ReadLine(ctx context.Context, prompt string) (string, error)
}

const (
	quotes       = `"""`
	continuation = ". "
)

// read returns the next message or command. It goes on over several lines when
// it begins with three quotes, up to a line that ends with three, and after a
// backslash at the end of a line.
func (s *shell) read(ctx context.Context) (string, error) {
	var text strings.Builder
	for next := prompt; ; next = continuation {
		line, err := s.Lines.ReadLine(ctx, next)
		if errors.Is(err, io.EOF) && text.Len() > 0 {
			return joinLines(text.String()), nil // the end comes with the next call
		}
		if err != nil {
			return "", err
		}
		if text.Len()+len(line) > MaxInput {
			return "", fmt.Errorf("a message is longer than %d bytes", MaxInput)
		}
		text.WriteString(line)
		if complete(text.String()) {
			return joinLines(text.String()), nil
		}
		text.WriteByte('\n')
	}
}

// complete tells whether a message needs no further line.
func complete(text string) bool {
	if rest, ok := strings.CutPrefix(text, quotes); ok {
		return strings.HasSuffix(strings.TrimRight(rest, " "), quotes)
	}
	return !strings.HasSuffix(text, `\`)
}

// joinLines takes away the backslashes at which a message went on.
func joinLines(text string) string {
	if strings.HasPrefix(text, quotes) {
		return text
	}
	return strings.ReplaceAll(text, "\\\n", "\n")
}

// unquote takes the three quotes off both ends of a message.
func unquote(text string) string {
	rest, ok := strings.CutPrefix(text, quotes)
	if !ok {
		return text
	}
	return strings.TrimSuffix(strings.TrimRight(rest, " "), quotes)
}

// plainLines reads lines without a terminal's help.
type plainLines struct {
	results chan lineResult
}

type lineResult struct {
	line string
	err  error
}

// NewLines returns the lines of r, as long as ctx lasts. A read that is under way
// when ctx ends goes on: pipes can't be interrupted.
func NewLines(ctx context.Context, r io.Reader) Lines {
	l := &plainLines{results: make(chan lineResult)}
	go l.read(ctx, bufio.NewReader(io.LimitReader(r, MaxInput)))
	return l
}

func (l *plainLines) read(ctx context.Context, in *bufio.Reader) {
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			err = nil // the end comes with the next read
		}
		select {
		case l.results <- lineResult{strings.TrimRight(line, "\r\n"), err}:
		case <-ctx.Done():
			return
		}
	}
}

func (l *plainLines) ReadLine(ctx context.Context, _ string) (string, error) {
	select {
	case r := <-l.results:
		return r.line, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
