package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/minisgl/minisgl/go/internal/tracing"
	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	flushTimeout      = 5 * time.Second // for the last bytes of responses at shutdown
	maxHeaderBytes    = 64 << 10
)

// Listen claims an address. The port 0 means any free one. The error names the
// address.
func Listen(ctx context.Context, host string, port int) (net.Listener, error) {
	if port < 0 || port > 65535 {
		return nil, fmt.Errorf("server: port must be 0 to 65535, got %d", port)
	}
	address := net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(port))
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err == nil {
		return l, nil
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return nil, fmt.Errorf("server: can't listen at %s: %w", address, err)
}

// Run serves at l while it loads the engine, and with the engine from then on.
// When ctx ends it takes no more work, lets the running requests end for at most
// Config.DrainTimeout, tells those that are left, and returns nil. It closes l
// and the engine.
func (s *Server) Run(ctx context.Context, l net.Listener, load func(context.Context) (Engine, error)) error {
	hs := &http.Server{
		Handler: s, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	if err := s.secure(hs); err != nil {
		return errors.Join(err, l.Close())
	}
	if err := s.startTracing(ctx); err != nil {
		return errors.Join(err, l.Close())
	}
	defer s.endTracing()
	served := make(chan error, 1)
	go func() { served <- s.serve(hs, l) }()
	defer hs.Close()
	url := s.scheme() + "://" + l.Addr().String()
	s.log.Info("listening; loading the model", "url", url)
	engine, err := load(ctx)
	if ctx.Err() != nil {
		return abandon(engine, err)
	}
	if err != nil {
		return err
	}
	if err := warmUp(ctx, engine); err != nil && ctx.Err() == nil {
		return errors.Join(fmt.Errorf("server: the model does not run: %w", err), engine.Close())
	}
	s.SetEngine(engine)
	s.logReady(url)
	watching, endWatch := context.WithCancel(context.Background())
	defer endWatch()
	go s.watch(watching)
	select {
	case err := <-served:
		flushCtx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		s.sockets.close(flushCtx)
		return errors.Join(fmt.Errorf("server: %w", err), engine.Close())
	case <-ctx.Done():
		return s.stop(hs)
	}
}

// warmUp lets an engine generate a token, so that the first request finds all
// that is made on demand.
func warmUp(ctx context.Context, engine Engine) error {
	params := llm.DefaultSampling()
	params.MaxTokens, params.IgnoreEOS = 1, true
	stream, err := engine.Stream(ctx, llm.Request{TokenIDs: []int32{0}, Params: params})
	if err != nil {
		return err
	}
	defer stream.Close()
	ev, err := stream.Next(ctx)
	switch {
	case err == nil && ev.Finish == llm.FinishError:
		return ev.Err
	case err == nil && ev.Finish == llm.FinishAbort:
		return shuttingDown()
	}
	return err
}

// secure loads the certificate, if there is one: a wrong file must not come to
// light with the first client.
func (s *Server) secure(hs *http.Server) error {
	if s.cfg.CertFile == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(s.cfg.CertFile, s.cfg.KeyFile)
	if err != nil {
		return fmt.Errorf("server: the certificate %s with the key %s: %w", s.cfg.CertFile, s.cfg.KeyFile, err)
	}
	hs.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	return nil
}

func (s *Server) scheme() string {
	if s.cfg.CertFile == "" {
		return "http"
	}
	return "https"
}

func (s *Server) serve(hs *http.Server, l net.Listener) error {
	if hs.TLSConfig == nil {
		return hs.Serve(l)
	}
	return hs.ServeTLS(l, "", "")
}

func (s *Server) startTracing(ctx context.Context) (err error) {
	if s.cfg.TracesEndpoint != "" {
		s.tracer, err = tracing.New(ctx, s.cfg.TracesEndpoint, s.cfg.Version, s.log)
	}
	return err
}

// endTracing sends the last spans.
func (s *Server) endTracing() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := s.tracer.Close(ctx); err != nil {
		s.log.Warn("traces were lost", "error", err)
	}
}

// abandon frees an engine whose loading was to end before it was ready.
func abandon(engine Engine, err error) error {
	if err != nil {
		return nil // most likely that it was interrupted
	}
	return engine.Close()
}

func (s *Server) logReady(url string) {
	info := s.engine.Info()
	s.log.Info("ready", "url", url, "model", info.Model, "architecture", info.Architecture, "dtype", info.DType,
		"device", info.Device, "threads", info.Threads, "max_seq_len", info.MaxSeqLen,
		"pages", info.NumPages, "page_size", info.PageSize, "load_time", info.LoadTime.Round(time.Millisecond))
	p := openai.DefaultSampling()
	info.Defaults.Apply(&p)
	s.log.Info("sampling of requests that don't say, by the model's generation_config.json if it does",
		"temperature", p.Temperature, "top_k", p.TopK, "top_p", p.TopP, "min_p", p.MinP, "repetition_penalty", p.RepetitionPenalty)
}

// stop ends the running requests, then the connections, then the engine.
func (s *Server) stop(hs *http.Server) error {
	s.state.Store(int32(draining))
	hs.SetKeepAlivesEnabled(false)
	s.log.Info("shutting down; running requests may end", "timeout", s.cfg.DrainTimeout)
	drainCtx, cancel := context.WithTimeout(context.Background(), s.cfg.DrainTimeout)
	defer cancel()
	if err := s.engine.Drain(drainCtx); err != nil {
		s.log.Warn("requests were cut off", "error", err)
	}
	flushCtx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	s.sockets.close(flushCtx)
	err := hs.Shutdown(flushCtx)
	if err != nil {
		s.log.Debug("connections were cut off", "error", err)
		err = hs.Close()
	}
	err = errors.Join(err, s.engine.Close())
	if err != nil {
		return fmt.Errorf("server: shutdown: %w", err)
	}
	s.log.Info("stopped")
	return nil
}
