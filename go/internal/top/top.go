// Package top shows a running server's figures, which it gets from /ws/stats, in
// a terminal.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/minisgl/minisgl/go/openai"
)

// retryAfter is how long a server that doesn't answer is left alone.
const retryAfter = time.Second

// Options say what is shown, and where.
type Options struct {
	Server *url.URL // such as http://127.0.0.1:1919
	Key    string   // its API key; "": none
	Out    io.Writer
	Keys   io.Reader                   // q ends; nil: there are no keys
	Size   func() (columns, lines int) // of the terminal
}

// state is what is known of the server.
type state struct {
	hello   *openai.StatsHello
	history []openai.ServerStats // the oldest first
	trouble error                // why there is nothing new
}

// add appends a sample. The history stays as long as the server's.
func (s *state) add(stats openai.ServerStats) {
	s.history = append(s.history, stats)
	if extra := len(s.history) - max(s.hello.Keep, 1); extra > 0 {
		s.history = s.history[extra:]
	}
	s.trouble = nil
}

// Once writes one snapshot as text.
func Once(ctx context.Context, o Options) error {
	feed, err := dial(ctx, o.Server, o.Key)
	if err != nil {
		return err
	}
	defer feed.close()
	s := state{hello: feed.hello, history: feed.hello.History}
	if len(s.history) == 0 {
		message, err := feed.next()
		if err != nil {
			return err
		}
		s.add(message.stats)
	}
	for _, line := range s.lines(o.Server, 80) {
		if _, err := fmt.Fprintln(o.Out, line); err != nil {
			return err
		}
	}
	return nil
}

// JSON writes the server's messages, an object a line, until ctx ends or the
// server does; with once only the first.
func JSON(ctx context.Context, o Options, once bool) error {
	feed, err := dial(ctx, o.Server, o.Key)
	if err != nil {
		return err
	}
	defer feed.close()
	for {
		message, err := feed.next()
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		if _, err := fmt.Fprintf(o.Out, "%s\n", message.raw); err != nil || once {
			return err
		}
	}
}

// Run draws the figures anew each second, until q or Ctrl-C is pressed. While the
// server is away it says so, and tries again. The terminal must be in raw mode.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates := make(chan func(*state))
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		watch(ctx, o, updates)
	}()
	defer func() { cancel(); <-watched }()
	quit := quitKey(o.Keys)
	var s state
	for {
		if err := draw(o, &s); err != nil {
			return err
		}
		select {
		case update := <-updates:
			update(&s)
		case <-quit:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watch passes on what the server says, until ctx ends.
func watch(ctx context.Context, o Options, updates chan<- func(*state)) {
	tell := func(update func(*state)) {
		select {
		case updates <- update:
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		err := follow(ctx, o, tell)
		tell(func(s *state) { s.trouble = err })
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
		}
	}
}

// follow passes on one connection's messages, and returns why it broke.
func follow(ctx context.Context, o Options, tell func(func(*state))) error {
	feed, err := dial(ctx, o.Server, o.Key)
	if err != nil {
		return err
	}
	defer feed.close()
	tell(func(s *state) { *s = state{hello: feed.hello, history: feed.hello.History} })
	for {
		message, err := feed.next()
		if err != nil {
			return err
		}
		tell(func(s *state) { s.add(message.stats) })
	}
}

// quitKey returns a channel that is closed when q or Ctrl-C is pressed. The
// reading of keys ends with them.
func quitKey(keys io.Reader) <-chan struct{} {
	quit := make(chan struct{})
	if keys == nil {
		return quit
	}
	go func() {
		key := make([]byte, 1)
		for {
			if _, err := keys.Read(key); err != nil {
				return
			}
			if key[0] == 'q' || key[0] == 'Q' || key[0] == '\x03' {
				close(quit)
				return
			}
		}
	}()
	return quit
}
