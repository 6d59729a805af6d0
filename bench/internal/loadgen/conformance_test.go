package loadgen

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/bench/internal/arrival"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// load is what a test sends; times in it and in the results are exact, because
// client and server share a clock that only moves when both wait.
type load struct {
	n           int
	rate        float64 // constant arrivals; 0 means all at once
	concurrency int
	maxTokens   int
	timeout     time.Duration
	idle        time.Duration
	interrupt   time.Duration
	api         API
	options     Options
}

func (l load) schedule() []time.Duration {
	deadlines, _ := arrival.Burst(l.n)
	if l.rate > 0 {
		deadlines, _ = arrival.Constant(l.rate, l.n)
	}
	return deadlines
}

// measure runs a load against a mock server, in memory and on a fake clock.
func measure(t *testing.T, cfg mockserver.Config, l load, check func([]record.Record, *mockserver.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := mockserver.New(cfg)
		pipe := mockserver.ServePipe(server)
		defer pipe.Close()
		client := NewHTTP(HTTPOptions{Timeout: l.timeout, IdleTimeout: l.idle, Connections: l.n, Dial: pipe.Dial})
		defer client.Close()
		prompts := make([]string, l.n)
		for i := range prompts {
			prompts[i] = fmt.Sprintf("prompt %d", i)
		}
		ctx := t.Context()
		if l.interrupt > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, l.interrupt)
			defer cancel()
		}
		chat := NewTarget(client, l.api, "http://mock", l.options, TextRequests(prompts, l.maxTokens))
		check(Run(ctx, chat, Config{Schedule: l.schedule(), MaxConcurrency: l.concurrency}), server)
	})
}

// tokensAt gives the times of n tokens, the first at ttft, then one each gap.
func tokensAt(ttft, gap time.Duration, n int) []time.Duration {
	times := make([]time.Duration, n)
	for i := range times {
		times[i] = ttft + time.Duration(i)*gap
	}
	return times
}

// Every framing and way of reporting must give the same tokens at the same times.
func TestFraming(t *testing.T) {
	base := mockserver.Config{TTFT: 50 * ms, ITL: 5 * ms, PromptTokens: 7, RoleChunk: true}
	tests := []struct {
		name   string
		change func(*mockserver.Config)
		want   record.TokenSource
	}{
		{"plain", func(*mockserver.Config) {}, record.ContinuousUsage},
		{"CRLF", func(c *mockserver.Config) { c.Newline = "\r\n" }, record.ContinuousUsage},
		{"CR", func(c *mockserver.Config) { c.Newline = "\r" }, record.ContinuousUsage},
		{"no space after the colon", func(c *mockserver.Config) { c.NoSpace = true }, record.ContinuousUsage},
		{"comments", func(c *mockserver.Config) { c.Comments = true }, record.ContinuousUsage},
		{"1-byte writes", func(c *mockserver.Config) { c.OneByte = true; c.Newline = "\r\n" }, record.ContinuousUsage},
		{"no role chunk", func(c *mockserver.Config) { c.RoleChunk = false }, record.ContinuousUsage},
		{"reasoning", func(c *mockserver.Config) { c.Reasoning = true }, record.ContinuousUsage},
		{"text held back", func(c *mockserver.Config) { c.EmptyText = 3 }, record.ContinuousUsage},
		{"all text empty", func(c *mockserver.Config) { c.EmptyText = 100 }, record.ContinuousUsage},
		{"long lines", func(c *mockserver.Config) { c.TextBytes = 200 << 10 }, record.ContinuousUsage},
		{"usage at the end", func(c *mockserver.Config) { c.Usage = mockserver.UsageFinal }, record.FinalUsage},
		{"no usage", func(c *mockserver.Config) { c.Usage = mockserver.UsageNever }, record.Chunks},
		{"continuous_usage_stats refused", func(c *mockserver.Config) { c.Refuse = "continuous_usage_stats" }, record.FinalUsage},
		{"stream_options refused", func(c *mockserver.Config) { c.Refuse = "stream_options" }, record.Chunks},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := base
			tt.change(&cfg)
			measure(t, cfg, load{n: 1, maxTokens: 16}, func(got []record.Record, _ *mockserver.Server) {
				r := got[0]
				if !r.OK() || r.Source != tt.want || r.Finish != "length" {
					t.Errorf("ended as %v %q, source %v, finish %q; want success by %v", r.Kind, r.Err, r.Source, r.Finish, tt.want)
				}
				if want := 7; tt.want != record.Chunks && r.PromptTokens != want {
					t.Errorf("%d prompt tokens, want %d", r.PromptTokens, want)
				}
				if diff := cmp.Diff(tokensAt(50*ms, 5*ms, 16), r.Tokens); diff != "" {
					t.Errorf("token times (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A1, A2: several tokens in a chunk still give latencies and rates per token.
func TestTokensPerChunk(t *testing.T) {
	for _, usage := range []mockserver.Usage{mockserver.UsageContinuous, mockserver.UsageFinal} {
		cfg := mockserver.Config{TTFT: 20 * ms, ITL: 5 * ms, TokensPerChunk: 4, Usage: usage}
		measure(t, cfg, load{n: 2, maxTokens: 100}, func(got []record.Record, _ *mockserver.Server) {
			s := metrics.Summarize(got)
			if s.OutputTokens != 200 || s.ITL.Count != 2*96 || s.ITL.Mean != 5 || s.ITL.Max != 5 {
				t.Errorf("usage %d: %d tokens, ITL %+v; want 200 tokens and 192 gaps of 5 ms", usage, s.OutputTokens, s.ITL)
			}
			if s.PeakOutput != 200 || s.TTFT.Mean != 20 || s.E2E.Mean != 20+96*5 {
				t.Errorf("usage %d: peak %v, TTFT %v, E2E %v", usage, s.PeakOutput, s.TTFT.Mean, s.E2E.Mean)
			}
		})
	}
}

// A3, A13: a limit is kept and shown as it is, and the wait for a slot counts
// from the intended start.
func TestConcurrencyLimit(t *testing.T) {
	cfg := mockserver.Config{TTFT: 100 * ms, ITL: 100 * ms}
	measure(t, cfg, load{n: 20, rate: 20, concurrency: 1, maxTokens: 2}, func(got []record.Record, server *mockserver.Server) {
		s := metrics.Summarize(got)
		if s.PeakConcurrency != 1 || server.PeakInFlight() != 1 || s.Concurrency != 1 {
			t.Errorf("peak %d, at the server %d, mean %v; want 1", s.PeakConcurrency, server.PeakInFlight(), s.Concurrency)
		}
		if s.E2E.Max != 200 || s.QueuedE2E.Max != 20*200-19*50 {
			t.Errorf("E2E %v, with the queue %v; want 200 and 3050", s.E2E.Max, s.QueuedE2E.Max)
		}
		if s.MaxLag != 0 {
			t.Errorf("client lag %v: waiting for a slot is not lag", s.MaxLag)
		}
	})
}

// A8: arrivals keep to their deadlines however long requests take.
func TestOpenLoop(t *testing.T) {
	cfg := mockserver.Config{TTFT: time.Second, ITL: ms}
	measure(t, cfg, load{n: 500, rate: 500, maxTokens: 4}, func(got []record.Record, _ *mockserver.Server) {
		for _, r := range got {
			if r.Start != r.Intended || r.Intended != time.Duration(r.Index)*2*ms {
				t.Fatalf("request %d: intended %v, sent %v", r.Index, r.Intended, r.Start)
			}
		}
		if s := metrics.Summarize(got); s.SentRate != 500 || s.PeakConcurrency != 500 {
			t.Errorf("rate %v, peak %d; want 500", s.SentRate, s.PeakConcurrency)
		}
	})
}

// A4, A5, A9, A10, A15 and the ways a stream can go wrong.
func TestEndings(t *testing.T) {
	tests := []struct {
		name   string
		cfg    mockserver.Config
		load   load
		kind   record.Kind
		tokens int
		err    string
	}{
		{"one token", mockserver.Config{}, load{maxTokens: 1}, record.OK, 1, ""},
		{"early EOS", mockserver.Config{EOSAfter: 10}, load{maxTokens: 100}, record.OK, 10, ""},
		{"early EOS without usage", mockserver.Config{EOSAfter: 10, Usage: mockserver.UsageNever}, load{maxTokens: 100}, record.OK, 10, ""},
		{"http 500", mockserver.Config{FailEvery: 1}, load{}, record.HTTPStatus, 0, "planned failure"},
		{"http 429", mockserver.Config{FailEvery: 1, FailStatus: 429}, load{}, record.HTTPStatus, 0, "429 Too Many Requests"},
		{"redirect", mockserver.Config{FailEvery: 1, FailStatus: 302}, load{}, record.HTTPStatus, 0, "302 Found"},
		{"refused for another reason", mockserver.Config{Refuse: "ignore_eos"}, load{}, record.HTTPStatus, 0, "unknown parameter: ignore_eos"},
		{"one document", mockserver.Config{OneJSON: true}, load{}, record.StreamError, 0, "not an event stream"},
		{"error in the stream", mockserver.Config{ErrorAfter: 3}, load{}, record.StreamError, 3, "planned stream error"},
		{"cut stream", mockserver.Config{CutAfter: 3}, load{}, record.Truncated, 3, "unexpected EOF"},
		{"no [DONE]", mockserver.Config{NoDone: true}, load{}, record.Truncated, 8, "without [DONE]"},
		{"no finish_reason", mockserver.Config{NoFinish: true}, load{}, record.Truncated, 8, "without a finish_reason"},
		{"garbage", mockserver.Config{GarbageAfter: 3}, load{}, record.BadJSON, 3, `{"choices":[{"delta":{"cont`},
		{"stalled, idle limit", mockserver.Config{StallAfter: 3}, load{idle: time.Second, timeout: time.Minute}, record.Timeout, 3, "nothing arrived for 1s"},
		{"stalled, time limit", mockserver.Config{StallAfter: 3}, load{idle: time.Minute, timeout: time.Second}, record.Timeout, 3, "no complete answer after 1s"},
		{"slow start, idle limit", mockserver.Config{TTFT: time.Hour}, load{idle: time.Second}, record.Timeout, 0, "nothing arrived for 1s"},
		{"interrupted", mockserver.Config{StallAfter: 3}, load{interrupt: time.Second}, record.Cancelled, 3, "interrupted"},
		{"slow but alive", mockserver.Config{ITL: time.Second}, load{idle: 2 * time.Second}, record.OK, 8, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := tt.load
			l.n = 3
			if l.maxTokens == 0 {
				l.maxTokens = 8
			}
			measure(t, tt.cfg, l, func(got []record.Record, _ *mockserver.Server) {
				if len(got) != 3 {
					t.Fatalf("%d records, want 3", len(got))
				}
				for _, r := range got {
					if r.Kind != tt.kind || len(r.Tokens) != tt.tokens || !strings.Contains(r.Err, tt.err) || (r.Err == "") != r.OK() {
						t.Errorf("ended as %v with %d tokens: %q; want %v, %d, %q", r.Kind, len(r.Tokens), r.Err, tt.kind, tt.tokens, tt.err)
					}
				}
				s := metrics.Summarize(got)
				if s.Completed+s.Failed != s.Sent {
					t.Errorf("%d + %d of %d sent", s.Completed, s.Failed, s.Sent)
				}
			})
		})
	}
}

// A4: failures beside successes are all counted, and only successes are measured.
func TestEveryFifthFails(t *testing.T) {
	cfg := mockserver.Config{TTFT: 10 * ms, ITL: ms, FailEvery: 5}
	measure(t, cfg, load{n: 20, rate: 10, maxTokens: 4}, func(got []record.Record, _ *mockserver.Server) {
		s := metrics.Summarize(got)
		if s.Completed != 16 || s.Failed != 4 || s.E2E.Count != 16 || s.E2E.Mean != 13 {
			t.Errorf("%d ok, %d failed, E2E %+v", s.Completed, s.Failed, s.E2E)
		}
		want := []metrics.Failure{{Label: "http 500", Count: 4, First: `500 Internal Server Error: {"error":{"message":"planned failure","type":"mock"}}`}}
		if diff := cmp.Diff(want, s.Failures); diff != "" {
			t.Errorf("failures (-want +got):\n%s", diff)
		}
	})
}

func TestInterruptStopsSending(t *testing.T) {
	cfg := mockserver.Config{TTFT: 250 * ms, ITL: ms}
	measure(t, cfg, load{n: 100, rate: 10, maxTokens: 4, interrupt: time.Second + ms}, func(got []record.Record, _ *mockserver.Server) {
		s := metrics.Summarize(got)
		if s.Sent != 11 || s.Completed != 8 || s.Failed != 3 {
			t.Errorf("sent %d, completed %d, failed %d; want 11, 8, 3", s.Sent, s.Completed, s.Failed)
		}
	})
}

func TestRequestBody(t *testing.T) {
	measure(t, mockserver.Config{}, load{n: 1, maxTokens: 8}, func(_ []record.Record, server *mockserver.Server) {
		want := []string{`{"model":"","messages":[{"role":"user","content":"prompt 0"}],"max_tokens":8,"temperature":0,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`}
		if diff := cmp.Diff(want, server.Bodies()); diff != "" {
			t.Errorf("bodies (-want +got):\n%s", diff)
		}
	})
}

// What a server refused once is not sent to it again.
func TestRefusedUsageIsRemembered(t *testing.T) {
	measure(t, mockserver.Config{Refuse: "stream_options"}, load{n: 5, rate: 1, maxTokens: 2}, func(got []record.Record, server *mockserver.Server) {
		with := 0
		for _, body := range server.Bodies() {
			if strings.Contains(body, "stream_options") {
				with++
			}
		}
		if s := metrics.Summarize(got); with != 1 || s.Completed != 5 {
			t.Errorf("sent stream_options %d times, %d completed; want 1 and 5", with, s.Completed)
		}
	})
}

// slowDecoder takes a second to decode an answer that came in 20 ms.
type slowDecoder struct{}

func (slowDecoder) Exchange(context.Context, int) *Exchange {
	time.Sleep(20 * ms)
	return &Exchange{Done: time.Now()}
}

func (slowDecoder) Decode(x *Exchange, begin time.Time, rec *record.Record) {
	time.Sleep(time.Second)
	rec.Done = x.Done.Sub(begin)
}

// A14: decoding is in nobody's latency and holds nobody back: the next request
// takes the slot as soon as the answer before it is read.
func TestA14_DecodingIsOffThePath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := Run(t.Context(), slowDecoder{}, Config{Schedule: make([]time.Duration, 10), MaxConcurrency: 1})
		for i, r := range got {
			if want := time.Duration(i) * 20 * ms; r.Start != want || r.Done != want+20*ms {
				t.Errorf("request %d: sent at %v, done at %v; want %v and 20 ms later", i, r.Start, r.Done, want)
			}
		}
	})
	measure(t, mockserver.Config{TTFT: 20 * ms, ITL: ms}, load{n: 64, maxTokens: 8}, func(got []record.Record, _ *mockserver.Server) {
		if s := metrics.Summarize(got); s.TTFT.Max != 20 || s.ITL.Max != 1 || s.MaxLag != 0 {
			t.Errorf("a burst of 64: TTFT up to %v ms, ITL up to %v, lag %v; want 20, 1, 0", s.TTFT.Max, s.ITL.Max, s.MaxLag)
		}
	})
}
