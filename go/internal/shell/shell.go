// Package shell is a conversation with a model in a terminal, or over pipes, a
// line a message. The commands chat and serve --shell-mode, and Python's
// minisgl.shell, run it.
package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/go/llm"
)

// Message is one message of a conversation, in the form that /save writes.
type Message struct {
	Role    string `json:"role"` // system, user or assistant
	Content string `json:"content"`
}

// Piece is a part of an answer.
type Piece struct {
	Text      string
	Reasoning bool // a server has told it apart from the answer; the conversation leaves it out
}

// Model answers conversations.
type Model interface {
	// Answer calls emit with the pieces of the answer as they come, once a token
	// where it can, and returns the number of tokens, also with an error.
	Answer(ctx context.Context, conversation []Message, params llm.SamplingParams, emit func(Piece)) (tokens int, err error)
}

// Options are what a conversation is held with.
type Options struct {
	Model  Model
	Params llm.SamplingParams
	System string // the system message; "": none
	Title  string // is printed first in a terminal
	// DefineParams adds the flags that /params shows and sets.
	DefineParams func(*pflag.FlagSet, *llm.SamplingParams)

	Lines Lines
	Out   io.Writer // answers, and what commands say
	Notes io.Writer // figures and errors
	// Interrupts stop an answer, and count as Ctrl-C at the prompt. Nil if they
	// are left to whoever ends the context.
	Interrupts <-chan os.Signal
	Terminal   bool // a person looks on
}

// shell is a running conversation.
type shell struct {
	Options
	opening  []Message
	messages []Message
}

const (
	prompt = "$ "
	// leaving is said after a first Ctrl-C at the prompt.
	leaving = "Ctrl-C once more, Ctrl-D or /exit leaves."
)

// Run holds a conversation until its input ends, /exit, or a second Ctrl-C in a
// row at the prompt. Without a terminal it also ends with the first answer that
// fails, and returns why.
func Run(ctx context.Context, o Options) error {
	s := &shell{Options: o}
	if o.System != "" {
		s.opening = []Message{{"system", o.System}}
	}
	s.reset()
	if o.Terminal {
		fmt.Fprintln(o.Out, o.Title)
	}
	interrupted := false
	for {
		text, err := s.read(ctx)
		switch {
		case errors.Is(err, ErrInterrupted) && !interrupted:
			interrupted = true
			fmt.Fprintln(o.Notes, leaving)
			continue
		case errors.Is(err, ErrInterrupted):
			return nil
		case errors.Is(err, io.EOF):
			if o.Terminal {
				fmt.Fprintln(o.Out)
			}
			return nil
		case err != nil:
			return err
		}
		interrupted = false
		if err := s.handle(ctx, text); err != nil {
			if errors.Is(err, errExit) {
				return nil
			}
			return err
		}
	}
}

func (s *shell) reset() { s.messages = append([]Message{}, s.opening...) }

// handle obeys a command or answers a message.
func (s *shell) handle(ctx context.Context, text string) error {
	command := strings.TrimSpace(text)
	switch {
	case command == "":
		return nil
	case strings.HasPrefix(text, "/"):
		return s.obey(command)
	}
	err := s.answer(ctx, strings.TrimSpace(unquote(text)))
	if err == nil || !s.Terminal || ctx.Err() != nil {
		return err
	}
	fmt.Fprintf(s.Notes, "error: %v\n", err)
	return nil
}
