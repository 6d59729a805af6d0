// Package tracing tells an OpenTelemetry collector of requests: for each one a
// span, and in it those of its wait in the queue, of its prompt and of its tokens.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer sends spans to a collector. A nil Tracer does nothing.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// New returns a tracer for a collector's URL, OTLP over HTTP; without a path it
// is /v1/traces. Nothing is sent yet: a collector that can't be reached costs
// spans, never requests.
func New(ctx context.Context, endpoint, version string, log *slog.Logger) (*Tracer, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("tracing: the collector must have a URL such as http://127.0.0.1:4318, got %q", endpoint)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces were lost", "error", err) }))
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()))
	if err != nil {
		return nil, fmt.Errorf("tracing: %q: %w", endpoint, err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "minisgl"), attribute.String("service.version", version))),
	)
	return &Tracer{provider: provider, tracer: provider.Tracer("minisgl")}, nil
}

// Close sends what is left.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Parent returns a context that carries the caller's span, by the request's
// header traceparent, if there is one.
func (t *Tracer) Parent(ctx context.Context, header http.Header) context.Context {
	if t == nil {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(header))
}

// Request is what is told of a request. Times that are zero did not come.
type Request struct {
	ID, Model                                    string
	Received                                     time.Time // it came
	Begun                                        time.Time // its first batch was planned
	First                                        time.Time // its first token was there
	Ended                                        time.Time
	PromptTokens, CachedTokens, CompletionTokens int
	MaxTokens                                    int
	Temperature, TopP                            float64
	Finish                                       string // why it ended, "" if it was cut short
	Err                                          error
}

// Done tells of a request that has ended. The names of attributes are those of
// OpenTelemetry's conventions for generative AI, and of vLLM's for latencies.
func (t *Tracer) Done(ctx context.Context, r Request) {
	if t == nil {
		return
	}
	ctx, span := t.tracer.Start(ctx, "llm_request", trace.WithTimestamp(r.Received), trace.WithSpanKind(trace.SpanKindServer))
	t.phase(ctx, "queue", r.Received, r.Begun, r.Ended)
	t.phase(ctx, "prefill", r.Begun, r.First, r.Ended)
	t.phase(ctx, "decode", r.First, r.Ended, r.Ended)
	span.SetAttributes(
		attribute.String("gen_ai.request.id", r.ID),
		attribute.String("gen_ai.request.model", r.Model),
		attribute.Int("gen_ai.request.max_tokens", r.MaxTokens),
		attribute.Float64("gen_ai.request.temperature", r.Temperature),
		attribute.Float64("gen_ai.request.top_p", r.TopP),
		attribute.Int("gen_ai.usage.prompt_tokens", r.PromptTokens),
		attribute.Int("gen_ai.usage.cached_tokens", r.CachedTokens),
		attribute.Int("gen_ai.usage.completion_tokens", r.CompletionTokens),
		attribute.Float64("gen_ai.latency.e2e", r.Ended.Sub(r.Received).Seconds()),
	)
	if !r.First.IsZero() {
		span.SetAttributes(attribute.Float64("gen_ai.latency.time_to_first_token", r.First.Sub(r.Received).Seconds()))
	}
	if r.Finish != "" {
		span.SetAttributes(attribute.StringSlice("gen_ai.response.finish_reasons", []string{r.Finish}))
	}
	if r.Err != nil {
		span.SetStatus(codes.Error, r.Err.Error())
	}
	span.End(trace.WithTimestamp(r.Ended))
}

// phase records one that began; it lasts to the end of the request if the next
// never came.
func (t *Tracer) phase(ctx context.Context, name string, from, to, end time.Time) {
	if from.IsZero() {
		return
	}
	if to.IsZero() {
		to = end
	}
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(from))
	span.End(trace.WithTimestamp(to))
}
