// Command testserver serves a model whose answers a test has written, so that
// tests of clients don't hang on what a small model can do. All else is real: the
// tokenizer, the chat template, the checks of requests, HTTP.
//
//	testserver -model DIR -answers FILE [-tool-call-parser NAME] [-reasoning-parser NAME]
//
// FILE holds a JSON list of texts, of which each request for text takes the next.
// The server's URL is all that it prints. It ends with its standard input.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/minisgl/minisgl/go/internal/server"
	"github.com/minisgl/minisgl/go/llm"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "testserver:", err)
		os.Exit(1)
	}
}

func run() error {
	var cfg server.Config
	model := flag.String("model", "", "directory of the model, of which the tokenizer and the template are used")
	answers := flag.String("answers", "", "JSON file of the answers")
	flag.StringVar(&cfg.ToolCallParser, "tool-call-parser", "", "as of minisgl serve")
	flag.StringVar(&cfg.ReasoningParser, "reasoning-parser", "", "as of minisgl serve")
	flag.Parse()
	data, err := os.ReadFile(*answers)
	if err != nil {
		return err
	}
	var texts []string
	if err := json.Unmarshal(data, &texts); err != nil {
		return fmt.Errorf("%s: %w", *answers, err)
	}
	ctx := context.Background()
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	const pages = 4096
	l, err := llm.New(ctx, llm.Config{Model: *model, NumPageOverride: pages, MaxSeqLenOverride: pages, Logger: cfg.Logger})
	if err != nil {
		return err
	}
	defer l.Close()
	listener, err := server.Listen(ctx, "127.0.0.1", 0)
	if err != nil {
		return err
	}
	s := server.New(cfg)
	s.SetEngine(newScripted(l, texts))
	hs := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = hs.Close()
	}()
	fmt.Printf("http://%s\n", listener.Addr())
	if err := hs.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
