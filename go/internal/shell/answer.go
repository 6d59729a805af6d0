package shell

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// answer prints the model's answer to a message as it comes, then its figures.
// What Ctrl-C leaves of it stays in the conversation; after another error the
// conversation is as it was.
func (s *shell) answer(ctx context.Context, text string) error {
	question := Message{"user", text}
	ctx, interrupted, stop := s.interruptible(ctx)
	defer stop()
	var got strings.Builder
	reasoned := false
	clock := stopwatch{begin: time.Now()}
	tokens, err := s.Model.Answer(ctx, append(s.messages, question), s.Params, func(p Piece) {
		clock.lap()
		switch {
		case p.Reasoning && s.Terminal:
			reasoned = true
			fmt.Fprint(s.Out, faint(s.printable(p.Text)))
		case !p.Reasoning:
			if reasoned && got.Len() == 0 && p.Text != "" {
				fmt.Fprint(s.Out, "\n\n")
			}
			got.WriteString(p.Text)
			fmt.Fprint(s.Out, s.printable(p.Text))
		}
	})
	if got.Len() > 0 || reasoned || err == nil {
		fmt.Fprintln(s.Out)
	}
	stopped := errors.Is(err, context.Canceled) && interrupted()
	if err != nil && !stopped {
		return err
	}
	s.messages = append(s.messages, question, Message{"assistant", got.String()})
	s.note(clock.figures(tokens, stopped))
	return nil
}

// interruptible returns a context that an interrupt ends, and whether one did.
// stop must be called.
func (s *shell) interruptible(ctx context.Context) (inner context.Context, interrupted func() bool, stop func()) {
	inner, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-s.Interrupts:
			cancel(ErrInterrupted)
		case <-inner.Done():
		}
	}()
	return inner,
		func() bool { return errors.Is(context.Cause(inner), ErrInterrupted) },
		func() { cancel(nil); <-done }
}

// printable is a text without the characters that command a terminal, if it is
// to be seen in one.
func (s *shell) printable(text string) string {
	if !s.Terminal {
		return text
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}

// note prints a line, faintly in a terminal.
func (s *shell) note(text string) {
	if s.Terminal {
		text = faint(text)
	}
	fmt.Fprintln(s.Notes, text)
}

// faint is a text in a terminal's faint letters.
func faint(text string) string { return "\x1b[2m" + text + "\x1b[0m" }

// stopwatch measures an answer.
type stopwatch struct{ begin, first, last time.Time }

func (w *stopwatch) lap() {
	w.last = time.Now()
	if w.first.IsZero() {
		w.first = w.last
	}
}

// figures tells the time to the first token and, of the tokens after it, the
// speed.
func (w *stopwatch) figures(tokens int, stopped bool) string {
	var parts []string
	if stopped {
		parts = append(parts, "stopped")
	}
	if !w.first.IsZero() {
		parts = append(parts, fmt.Sprintf("TTFT %.0f ms", float64(w.first.Sub(w.begin))/1e6))
	}
	if d := w.last.Sub(w.first).Seconds(); tokens > 1 && d > 0 {
		parts = append(parts, fmt.Sprintf("%.1f tok/s", float64(tokens-1)/d))
	}
	parts = append(parts, fmt.Sprintf("%d tokens", tokens))
	return "[" + strings.Join(parts, ", ") + "]"
}
