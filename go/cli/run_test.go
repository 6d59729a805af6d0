package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/go/internal/server"
	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/tokenizer"
)

func TestMain(m *testing.M) {
	if line, ok := os.LookupEnv(commandVariable); ok {
		os.Exit(runAsCommand(line))
	}
	goleak.VerifyTestMain(m)
}

// fakeEngines is a package llm whose model answers each token of a prompt with
// its upper case, one character a token.
type fakeEngines struct {
	config llm.Config
	newErr error
	chats  [][]tokenizer.Message
	params []llm.SamplingParams
	closed int
}

func (f *fakeEngines) New(_ context.Context, cfg llm.Config) (engine, error) {
	f.config = cfg
	if f.newErr != nil {
		return nil, f.newErr
	}
	return &fakeEngine{f}, nil
}

func (f *fakeEngines) OpList(_ context.Context, model, source string) (string, error) {
	return "ops of " + model + " from " + source, nil
}

func (f *fakeEngines) Resolve(_ context.Context, name, source string, progress io.Writer) (string, error) {
	if name == "missing" {
		return "", errors.New("no model is called missing")
	}
	fmt.Fprintln(progress, "fetching from "+source)
	return "/cache/" + name, nil
}

type fakeEngine struct{ f *fakeEngines }

func (e *fakeEngine) Info() llm.Info {
	return llm.Info{Model: e.f.config.Model, Device: "fake", MaxSeqLen: 512}
}
func (e *fakeEngine) Drain(context.Context) error { return nil }
func (e *fakeEngine) Stats() llm.Stats            { return llm.Stats{} }
func (e *fakeEngine) FlushCache() (int, error)    { return 0, nil }

func (e *fakeEngine) Encode(string, bool) ([]int32, error) { return nil, nil }
func (e *fakeEngine) StartTrace()                          {}

func (e *fakeEngine) StopTrace() []llm.BatchTrace { return nil }

func (e *fakeEngine) TokenBytes(int32) []byte { return nil }

func (e *fakeEngine) CheckGrammar(llm.Grammar) error { return nil }

func (e *fakeEngine) Decode([]int32, bool) (string, error) { return "", nil }

func (e *fakeEngine) Close() error {
	e.f.closed++
	return nil
}

func (e *fakeEngine) EncodeChat(msgs []tokenizer.Message, _ tokenizer.TemplateOptions) ([]int32, error) {
	e.f.chats = append(e.f.chats, append([]tokenizer.Message{}, msgs...))
	ids := []int32{}
	for _, c := range "<" + msgs[len(msgs)-1].Content + ">" {
		ids = append(ids, c)
	}
	return ids, nil
}

func answer(req llm.Request) string {
	if req.TokenIDs == nil {
		return strings.ToUpper(req.Text)
	}
	var text strings.Builder
	for _, id := range req.TokenIDs {
		text.WriteRune(id)
	}
	return strings.ToUpper(text.String())
}

func (e *fakeEngine) Generate(ctx context.Context, reqs []llm.Request, _ func(llm.Progress)) ([]llm.Output, error) {
	var outs []llm.Output
	for _, req := range reqs {
		e.f.params = append(e.f.params, req.Params)
		text := answer(req)
		outs = append(outs, llm.Output{Text: text, Finish: llm.FinishStop, Usage: llm.Usage{PromptTokens: 2, CompletionTokens: len(text)}})
	}
	return outs, ctx.Err()
}

func (e *fakeEngine) Stream(_ context.Context, req llm.Request) (server.Stream, error) {
	e.f.params = append(e.f.params, req.Params)
	text := answer(req)
	return &fakeStream{text: text, endless: text == "<ENDLESS>"}, nil
}

// fakeStream goes on for ever if it answers "endless".
type fakeStream struct {
	text    string
	n       int
	endless bool
}

func (s *fakeStream) Close() {}

func (s *fakeStream) Next(ctx context.Context) (llm.Event, error) {
	if ctx.Err() != nil {
		return llm.Event{}, ctx.Err()
	}
	usage := llm.Usage{PromptTokens: 2, CompletionTokens: s.n}
	if s.text == ">" && s.endless {
		s.n++
		return llm.Event{HasToken: true, Text: ">", Usage: usage}, nil
	}
	if s.text == "" {
		return llm.Event{Finish: llm.FinishStop, Usage: usage}, nil
	}
	s.n++
	usage.CompletionTokens++
	_, size := utf8.DecodeRuneInString(s.text)
	ev := llm.Event{HasToken: true, Text: s.text[:size], Usage: usage}
	s.text = s.text[size:]
	return ev, nil
}

// call runs a command line.
func call(t *testing.T, ctx context.Context, f *fakeEngines, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(ctx, args, &program{engines: f, stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs})
	return code, out.String(), errs.String()
}

// ended is a context that has ended: serve starts, drains and returns.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// generateConfig returns what the flags of a command line make of llm.Config.
func generateConfig(t *testing.T, args ...string) llm.Config {
	t.Helper()
	f := &fakeEngines{}
	if code, _, stderr := call(t, t.Context(), f, "", append([]string{"generate", "x"}, args...)...); code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, stderr)
	}
	return f.config
}

func TestEngineFlags(t *testing.T) {
	defaults := llm.Config{
		Model: "smollm2-135m", ModelSource: "huggingface", DType: "auto", KVCacheDType: "auto", Quantization: "auto", Device: "auto", AttentionBackend: "auto", TPSize: 1, MaxRunningReq: 256, PageSize: 1,
		MaxExtendTokens: 8192, MemoryRatio: 0.9, CacheType: "radix", SchedulePolicy: "fcfs", Admission: "optimistic", MixedTokens: new(128), CUDAGraphMaxBS: new(256), Seed: new(uint64(42)),
	}
	with := func(change func(*llm.Config)) llm.Config {
		c := defaults
		change(&c)
		return c
	}
	tests := []struct {
		args string
		want llm.Config
	}{
		{"", defaults},
		{"--model M", with(func(c *llm.Config) { c.Model = "M" })},
		{"--model-path=~/m", with(func(c *llm.Config) { c.Model = "~/m" })},
		{"--cache naive --tp 1", with(func(c *llm.Config) { c.CacheType = "naive" })},
		{"--tp-size=1 --attn auto --graph 0 --moe auto", with(func(c *llm.Config) { c.CUDAGraphMaxBS = new(0) })},
		{"--cuda-graph-bs 1,8", with(func(c *llm.Config) { c.CUDAGraphBS = []int{1, 8} })},
		{"--num-pages 64 --page-size 16", with(func(c *llm.Config) { c.NumPageOverride, c.PageSize = 64, 16 })},
		{"--tp 2", with(func(c *llm.Config) { c.TPSize = 2 })},
		{"--max-prefill 32", with(func(c *llm.Config) { c.MaxExtendTokens = 32 })},
		{"--max-extend-length 33", with(func(c *llm.Config) { c.MaxExtendTokens = 33 })},
		{"--max-running-requests 4 --max-seq-len-override 99", with(func(c *llm.Config) { c.MaxRunningReq, c.MaxSeqLenOverride = 4, 99 })},
		{"--memory 0.5 --dtype float32 --device ref --threads 3 --seed 7", with(func(c *llm.Config) {
			c.MemoryRatio, c.DType, c.Device, c.Threads, c.Seed = 0.5, "float32", "ref", 3, new(uint64(7))
		})},
		{"--disable-pynccl --cuda-graph-max-bs 256 --model-source huggingface", defaults},
		{"--attn fa,fi --moe-backend fused", with(func(c *llm.Config) { c.AttentionBackend = "fa,fi" })},
		{"--attention-backend ours", with(func(c *llm.Config) { c.AttentionBackend = "ours" })},
		{"--mem-fraction-static 0.7 --context-length 512 --random-seed 0 --chunked-prefill-size 64 --disable-radix-cache --chat-template t.jinja", with(func(c *llm.Config) {
			c.MemoryRatio, c.MaxSeqLenOverride, c.Seed, c.MaxExtendTokens, c.CacheType, c.ChatTemplate = 0.7, 512, new(uint64(0)), 64, "naive", "t.jinja"
		})},
		{"--model-source modelscope --dummy-weight", with(func(c *llm.Config) { c.ModelSource, c.DummyWeight = "modelscope", true })},
		{"--speculative-algorithm NGRAM --speculative-num 4", with(func(c *llm.Config) {
			c.SpeculativeAlgorithm, c.SpeculativeDraftTokens = "NGRAM", 4
		})},
		{"--schedule-policy lpm --admission conservative --mixed 64 --disable-overlap --disable-jump", with(func(c *llm.Config) {
			c.SchedulePolicy, c.Admission, c.MixedTokens, c.DisableOverlap, c.DisableJumpForward = "lpm", "conservative", new(64), true, true
		})},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			got := generateConfig(t, strings.Fields(test.args)...)
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(llm.Config{}, "Logger")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUsageErrors(t *testing.T) {
	tests := []struct{ args, want string }{
		{"serve --m x", "ambiguous option: --m could be --max-prefill-length, --max-queued-requests, --max-running-requests, --max-seq-len-override, --memory-ratio, --mixed-prefill-tokens, --model-path, --model-source, --moe-backend"},
		{"serve --num 3", "ambiguous option: --num could be --num-pages, --num-tokenizer"},
		{"serve --nonsense 3", "unknown flag: --nonsense"},
		{"serve --port abc", "invalid argument \"abc\" for \"--port\""},
		{"serve --port 70000", "--port must be 0 (any free one) to 65535, got 70000"},
		{"serve --port", "flag needs an argument: --port"},
		{"serve extra", "unknown command \"extra\""},
		{"serve --attn fa,xx", "--attention-backend must be one of auto, fa, fi, ours, trtllm"},
		{"serve --attn fa,fi,fa", "or a pair of these for prompts and decoding, got \"fa,fi,fa\""},
		{"serve --moe-backend none", "auto or fused"},
		{"serve --ssl-keyfile k", "go together"},
		{"serve --request-timeout -1", "number of seconds"},
		{"serve --config /nowhere.yaml", "--config: stat /nowhere.yaml: no such file"},
		{"serve --page-size 0", "at least 1"},
		{"serve --memory-ratio 0", "(0, 1]"},
		{"serve --graph -1", "at least 0"},
		{"serve --num-tokenizer -1", "at least 0"},
		{"serve --max-queued-requests -1", "0 (no limit) or more"},
		{"serve --tool-call-parser x", "--tool-call-parser must be auto, qwen, hermes, llama3, mistral, got \"x\""},
		{"serve --reasoning-parser x", "--reasoning-parser must be auto, qwen3, deepseek-r1, got \"x\""},
		{"serve --log-level loud", "debug, info, warning or error"},
		{"serve --drain-timeout -3", "number of seconds"},
		{"generate", "there is no prompt"},
		{"generate x --temperature -1", "temperature: must be"},
		{"chat --top-p 2", "top_p: must be"},
		{"fetch", "accepts 1 arg"},
		{"nonsense", "unknown command \"nonsense\""},
		{"--nonsense", "unknown flag: --nonsense"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			code, stdout, stderr := call(t, ended(), &fakeEngines{}, "", strings.Fields(test.args)...)
			if code != exitUsage || stdout != "" {
				t.Errorf("exit code %d, stdout %q", code, stdout)
			}
			if !strings.Contains(stderr, test.want) || !strings.HasPrefix(stderr, "Usage: minisgl") {
				t.Errorf("stderr should contain %q:\n%s", test.want, stderr)
			}
		})
	}
}

func TestServe(t *testing.T) {
	for _, args := range []string{
		"--port=0 --model M", "--port 0 --drain-timeout 1.5 --log-level debug", "--port 0 --num-tok 2", "--port 0 --tokenizer-count 2 --host 127.0.0.1",
		"--port 0 --served-model-name m --strict-model --api-key k --cors-origin * --max-queued-requests 5 --enable-metrics",
	} {
		f := &fakeEngines{}
		code, _, stderr := call(t, ended(), f, "", append([]string{"serve"}, strings.Fields(args)...)...)
		if code != 0 || f.closed != 1 || !strings.Contains(stderr, "http://127.0.0.1:") {
			t.Errorf("%s: exit code %d, %d engines closed: %s", args, code, f.closed, stderr)
		}
	}
}

func TestServeFailures(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := &fakeEngines{}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	code, _, stderr := call(t, t.Context(), f, "", "serve", "--port", port)
	if code != exitFailure || !strings.Contains(stderr, "127.0.0.1:"+port) || f.config.Model != "" {
		t.Errorf("a port that is taken: exit code %d, loaded %q: %s", code, f.config.Model, stderr)
	}
	f.newErr = errors.New("no such model")
	if code, _, stderr := call(t, t.Context(), f, "", "serve", "--port", "0"); code != exitFailure || !strings.Contains(stderr, "no such model") {
		t.Errorf("no model: exit code %d: %s", code, stderr)
	}
	f.newErr = &llm.InvalidError{Field: "dtype", Message: "must be auto, float32 or bfloat16"}
	if code, _, _ := call(t, t.Context(), f, "", "serve", "--port", "0"); code != exitUsage {
		t.Errorf("wrong dtype: exit code %d", code)
	}
}

func TestGenerate(t *testing.T) {
	tests := []struct{ name, stdin, args, want string }{
		{"one", "", "ab", "AB\n"},
		{"several", "", "ab cd", "--- 1\nAB\n--- 2\nCD\n"},
		{"stdin", "two\nlines\n", "", "TWO\nLINES\n\n"},
		{"chat", "", "--chat ab", "<AB>\n"},
		{"stream", "", "--stream ab cd", "--- 1\nAB\n--- 2\nCD\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := &fakeEngines{}
			code, stdout, stderr := call(t, t.Context(), f, test.stdin, append([]string{"generate"}, strings.Fields(test.args)...)...)
			if code != 0 || stdout != test.want || f.closed != 1 {
				t.Errorf("exit code %d, %d engines closed, got %q, want %q", code, f.closed, stdout, test.want)
			}
			if !strings.Contains(stderr, "prompt tokens") || !strings.Contains(stderr, "tokens/s") {
				t.Errorf("stderr: %s", stderr)
			}
		})
	}
}

func TestSamplingFlags(t *testing.T) {
	f := &fakeEngines{}
	call(t, t.Context(), f, "", "generate", "x", "--max-tokens", "9", "--temperature", "0.5", "--top-k", "3", "--top-p", "0.7", "--min-p", "0.1", "--ignore-eos")
	want := []llm.SamplingParams{{Temperature: 0.5, TopK: 3, TopP: 0.7, MinP: 0.1, MaxTokens: 9, IgnoreEOS: true, RepetitionPenalty: 1}}
	if diff := cmp.Diff(want, f.params); diff != "" {
		t.Error(diff)
	}
}

func TestInterrupted(t *testing.T) {
	for _, args := range [][]string{{"generate", "x"}, {"generate", "--stream", "x"}} {
		f := &fakeEngines{}
		if code, _, stderr := call(t, ended(), f, "", args...); code != exitInterrupted || f.closed != 1 {
			t.Errorf("%v: exit code %d, %d engines closed: %s", args, code, f.closed, stderr)
		}
	}
}

func TestChatInterruptedWhileReading(t *testing.T) {
	stdin, typing := io.Pipe()
	defer typing.Close()
	f := &fakeEngines{}
	code := run(ended(), []string{"chat"}, &program{engines: f, stdin: stdin, stdout: io.Discard, stderr: io.Discard})
	if code != exitInterrupted || f.closed != 1 {
		t.Errorf("exit code %d, %d engines closed", code, f.closed)
	}
}

func TestChat(t *testing.T) {
	for _, args := range [][]string{{"chat", "--system", "s"}, {"serve", "--shell"}} {
		f := &fakeEngines{}
		code, stdout, _ := call(t, t.Context(), f, "ab\r\n\nc", args...)
		if code != 0 || stdout != "<AB>\n<C>\n" || f.closed != 1 {
			t.Errorf("%v: exit code %d, stdout %q", args, code, stdout)
		}
		turns := []tokenizer.Message{{Role: "user", Content: "ab"}, {Role: "assistant", Content: "<AB>"}, {Role: "user", Content: "c"}}
		if args[0] == "chat" {
			turns = append([]tokenizer.Message{{Role: "system", Content: "s"}}, turns...)
		}
		if diff := cmp.Diff(turns, f.chats[1]); diff != "" {
			t.Error(diff)
		}
		if p := f.params[0]; p.Temperature != 0.6 || p.MaxTokens != 2048 {
			t.Errorf("sampling %+v", p)
		}
	}
}

func TestTools(t *testing.T) {
	tests := []struct {
		args         string
		code         int
		stdout, errs string
	}{
		{"ops --model M", 0, "ops of M from huggingface\n", ""},
		{"ops --model-source modelscope", 0, "ops of smollm2-135m from modelscope\n", ""},
		{"fetch m", 0, "/cache/m\n", "fetching from huggingface\n"},
		{"fetch --model-source modelscope m", 0, "/cache/m\n", "fetching from modelscope\n"},
		{"fetch missing", exitFailure, "", "minisgl fetch: error: no model is called missing\n"},
	}
	for _, test := range tests {
		code, stdout, stderr := call(t, t.Context(), &fakeEngines{}, "", strings.Fields(test.args)...)
		if code != test.code || stdout != test.stdout || stderr != test.errs {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", test.args, code, stdout, stderr)
		}
	}
	if code, stdout, _ := call(t, t.Context(), &fakeEngines{}, "", "version"); code != 0 || !strings.HasPrefix(stdout, "minisgl "+Version+" go") {
		t.Errorf("version: exit code %d: %q", code, stdout)
	}
}

func TestHelp(t *testing.T) {
	for _, flag := range []string{"--help", "-h", "--hel"} {
		code, stdout, _ := call(t, t.Context(), &fakeEngines{}, "", "serve", flag)
		for _, want := range []string{"--model-path", "(also --model)", `(default "smollm2-135m")`, "(default 1919)", `(default "127.0.0.1")`, "--attention-backend"} {
			if code != 0 || !strings.Contains(stdout, want) {
				t.Errorf("%s: exit code %d; help should contain %q:\n%s", flag, code, want, stdout)
			}
		}
	}
}
