package llm_test

import (
	"context"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/go/llm"
)

func run(t *testing.T, l *llm.LLM, req llm.Request) (ids []int32, text string, last llm.Event) {
	t.Helper()
	s, err := l.Stream(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	return readAll(t, s)
}

func TestStreamStopsEarly(t *testing.T) {
	l := tiny(t, nil)
	req := endless(5, 6, 7)
	req.Params.MaxTokens = 40
	ids, text, last := run(t, l, req)
	if last.Finish != llm.FinishLength || len(text) < 20 {
		t.Fatalf("the model says too little: %q, %s", text, last.Finish)
	}
	runes := []rune(text)
	stop := string(runes[len(runes)/2 : len(runes)/2+3])
	want, _, _ := strings.Cut(text, stop)
	req.Params.MaxTokens = 1 << 40
	req.Stop = []string{"\x00never", stop}
	_, got, last := run(t, l, req)
	if got != want || last.Finish != llm.FinishStop || last.Stop != stop {
		t.Errorf("got %q (%+v), want %q", got, last, want)
	}
	waitIdle(t, l)

	req.Stop, req.StopTokenIDs = nil, []int32{ids[len(ids)-1]}
	gotIDs, _, last := run(t, l, req)
	first := 0
	for ids[first] != req.StopTokenIDs[0] {
		first++
	}
	if len(gotIDs) != first || last.HasToken || last.Finish != llm.FinishStop || last.Usage.CompletionTokens != first {
		t.Errorf("stop token: got %v (%+v), want the first %d of %v", gotIDs, last, first, ids)
	}
	waitIdle(t, l)
	if err := l.CheckIntegrity(); err != nil {
		t.Error(err)
	}
}

func TestStopTextIsReleasedAtTheEnd(t *testing.T) {
	l := tiny(t, nil)
	req := endless(5, 6, 7)
	req.Params.MaxTokens = 10
	_, want, _ := run(t, l, req)
	req.Stop = []string{want + "more"}
	if _, got, last := run(t, l, req); got != want || last.Finish != llm.FinishLength {
		t.Errorf("got %q (%s), want %q", got, last.Finish, want)
	}
}

func TestGenerateRefusesStops(t *testing.T) {
	l := tiny(t, nil)
	req := endless(1)
	req.Stop = []string{"x"}
	_, err := l.Generate(context.Background(), []llm.Request{endless(1), req}, nil)
	if err == nil || !strings.Contains(err.Error(), "sampling_params[1].stop") {
		t.Errorf("got %v", err)
	}
}

func TestFlushCache(t *testing.T) {
	l := tiny(t, nil)
	req := endless(1, 2, 3, 4, 5, 6, 7, 8)
	req.Params.MaxTokens = 4
	if _, _, last := run(t, l, req); last.Usage.CachedTokens != 0 {
		t.Fatalf("%d tokens were cached already", last.Usage.CachedTokens)
	}
	waitIdle(t, l)
	pages, err := l.FlushCache()
	if err != nil || pages < 8 {
		t.Errorf("flushed %d pages, %v", pages, err)
	}
	if _, _, last := run(t, l, req); last.Usage.CachedTokens != 0 {
		t.Errorf("%d tokens were cached after a flush", last.Usage.CachedTokens)
	}
	if err := l.CheckIntegrity(); err != nil {
		t.Error(err)
	}
	l.Close()
	if _, err := l.FlushCache(); err == nil {
		t.Error("a closed engine was flushed")
	}
}
