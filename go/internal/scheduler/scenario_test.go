package scheduler

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/kvcache"
	"github.com/minisgl/minisgl/go/internal/kvcache/naive"
	"github.com/minisgl/minisgl/go/internal/kvcache/radix"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected output of testdata/*.txt")

// TestScenarios runs the scripts in testdata. A script is blocks of commands and,
// after a line "----", what they print; CheckIntegrity runs after every command.
//
//	config pages=8 page=4 running=4 extend=16 seq=64 eos=0 radix=1 conservative=1 lpm=1 mixed=8 draft=4 jump=1
//	add uid=1 prompt=10 max=3          a prompt of tokens 100 … 109, at most 3 to generate
//	add uid=1 prompt=10 max=3 from=7   the same, but other tokens from position 7 on
//	add uid=1 prompt=10 max=3 logprobs=1
//	add uid=1 prompt=10 max=3 grammar=1
//	next                               plan a batch; * gives a token, *+2 has two guesses and gives three
//	complete 7 9                       the oldest batch gave these tokens
//	fail                               the oldest batch could not run
//	abort uid=1
//	reset                              drop what the prefix cache keeps for nobody
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScenario(t, file) })
	}
}

func runScenario(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	sc := &scenario{}
	for _, block := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
		commands, _, _ := strings.Cut(block, "\n----")
		var out strings.Builder
		for _, line := range strings.Split(commands, "\n") {
			if !strings.HasPrefix(line, "#") {
				sc.run(t, &out, line)
			}
		}
		fmt.Fprintf(&got, "%s\n----\n%s\n", commands, out.String())
	}
	want := strings.TrimSpace(string(text)) + "\n"
	have := strings.TrimSpace(got.String()) + "\n"
	if *rewrite {
		if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s (-want +got; run with -rewrite to accept):\n%s", file, diff)
	}
}

// scenario is the state of a script.
type scenario struct {
	s      *Scheduler
	flying []*core.Batch
}

func (sc *scenario) run(t *testing.T, out *strings.Builder, line string) {
	fields := strings.Fields(line)
	switch fields[0] {
	case "config":
		sc.config(t, args(t, fields[1:]))
	case "add":
		sc.add(t, out, args(t, fields[1:]))
	case "next":
		sc.next(out)
	case "complete":
		sc.complete(t, out, fields[1:])
	case "fail":
		report(out, sc.s.Fail(sc.oldest()))
	case "reset":
		fmt.Fprintf(out, "reset: %d pages\n", sc.s.Reset())
	case "abort":
		uid := args(t, fields[1:])["uid"]
		fmt.Fprintf(out, "abort %d: %v\n", uid, sc.s.Abort(core.UID(uid)))
	default:
		t.Fatalf("unknown command %q", line)
	}
	if err := sc.s.CheckIntegrity(); err != nil {
		t.Fatalf("after %q: %v", line, err)
	}
	if fields[0] != "config" && fields[0] != "add" {
		fmt.Fprintln(out, status(sc.s.Status()))
	}
}

func status(s Status) string {
	line := fmt.Sprintf("waiting %d, running %d, free pages %d", s.Waiting, s.Running, s.FreePages)
	if s.CachedPages > 0 {
		line += fmt.Sprintf(", cached %d (evictable %d)", s.CachedPages, s.EvictablePages)
	}
	if s.Preemptions > 0 {
		line += fmt.Sprintf(", preemptions %d", s.Preemptions)
	}
	if s.Jumped > 0 {
		line += fmt.Sprintf(", jumped %d", s.Jumped)
	}
	if s.Drafted > 0 {
		line += fmt.Sprintf(", %d of %d guesses right", s.Accepted, s.Drafted)
	}
	return line
}

func args(t *testing.T, fields []string) map[string]int {
	m := map[string]int{}
	for _, f := range fields {
		key, value, _ := strings.Cut(f, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			t.Fatalf("argument %q is not key=number", f)
		}
		m[key] = n
	}
	return m
}

func (sc *scenario) config(t *testing.T, a map[string]int) {
	cfg := Config{PageSize: a["page"], NumPages: a["pages"], MaxRunning: a["running"], MaxExtendTokens: a["extend"], MaxSeqLen: a["seq"]}
	if eos, ok := a["eos"]; ok {
		cfg.EOS = []int32{int32(eos)}
	}
	cfg.Conservative, cfg.MixedTokens, cfg.JumpForward = a["conservative"] == 1, a["mixed"], a["jump"] == 1
	cfg.Speculation = Speculation{MaxDraft: a["draft"], Always: true}
	if a["lpm"] == 1 {
		cfg.Order = LPM
	}
	var cache kvcache.PrefixCache = naive.New()
	if a["radix"] == 1 {
		cache = radix.New(cfg.PageSize)
	}
	sc.s = New(cfg, cache)
}

func (sc *scenario) add(t *testing.T, out *strings.Builder, a map[string]int) {
	r := &core.Req{UID: core.UID(a["uid"]), Params: core.DefaultSampling(), IDs: make([]int32, a["prompt"]), PromptLen: a["prompt"]}
	for i := range r.IDs {
		r.IDs[i] = int32(100 + i)
		if from, ok := a["from"]; ok && i >= from {
			r.IDs[i] += int32(1000 * a["uid"])
		}
	}
	r.Params.MaxTokens = a["max"]
	r.Params.IgnoreEOS = a["ignore_eos"] == 1
	r.Params.Logprobs = a["logprobs"] == 1
	if a["grammar"] == 1 {
		r.Matcher = counting{}
	}
	err := sc.s.Add(r)
	var invalid *core.InvalidError
	switch {
	case errors.As(err, &invalid):
		fmt.Fprintf(out, "refused: %v\n", err)
	case err != nil:
		t.Fatal(err)
	}
}

func (sc *scenario) next(out *strings.Builder) {
	b := sc.s.Next()
	if b == nil {
		fmt.Fprintln(out, "nothing to do")
		return
	}
	sc.flying = append(sc.flying, b)
	fmt.Fprintf(out, "%s, %d tokens:", b.Phase, b.Tokens)
	for _, seq := range b.Seqs {
		fmt.Fprintf(out, " %d[%d:%d]", seq.Req.UID, seq.Start, seq.End)
		if seq.Sample {
			out.WriteString("*")
		}
		if len(seq.Draft) > 0 {
			fmt.Fprintf(out, "+%d", len(seq.Draft))
		}
	}
	out.WriteString("\n")
}

func (sc *scenario) oldest() *core.Batch {
	b := sc.flying[0]
	sc.flying = sc.flying[1:]
	return b
}

func (sc *scenario) complete(t *testing.T, out *strings.Builder, fields []string) {
	var tokens []int32
	for _, f := range fields {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, int32(n))
	}
	b, samples := sc.oldest(), 0
	for _, seq := range b.Seqs {
		samples += seq.Samples()
	}
	if samples != len(tokens) {
		t.Fatalf("complete has %d tokens, the batch gives %d; so far:\n%s", len(tokens), samples, out)
	}
	report(out, sc.s.Complete(b, tokens))
}

func report(out *strings.Builder, outs []Output) {
	for _, o := range outs {
		fmt.Fprintf(out, "request %d:", o.Req.UID)
		if o.HasToken {
			fmt.Fprintf(out, " token %d", o.Token)
		}
		if o.Finish != "" {
			fmt.Fprintf(out, " %s", o.Finish)
		}
		out.WriteString("\n")
	}
}
