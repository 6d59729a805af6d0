package cli

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseBenchCase(t *testing.T) {
	for text, want := range map[string]benchCase{
		"512":       {Batch: 1, Prompt: 512},
		"16x32+64":  {Batch: 16, Prompt: 32, Output: 64},
		"1x2048+32": {Batch: 1, Prompt: 2048, Output: 32},
	} {
		got, err := parseBenchCase(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for _, text := range []string{"", "x", "0", "-1", "16x32", "32+64", "1x2+", "1x1+99999999999999999999", "2000000"} {
		if c, err := parseBenchCase(text); err == nil {
			t.Errorf("%q is %+v; want an error", text, c)
		}
	}
}

func TestBenchSpeed(t *testing.T) {
	start := time.Unix(100, 0)
	at := func(ms ...int) chan time.Time {
		ch := make(chan time.Time, len(ms))
		for _, m := range ms {
			ch <- start.Add(time.Duration(m) * time.Millisecond)
		}
		close(ch)
		return ch
	}
	if got := (benchCase{Batch: 1, Prompt: 512}).speed(start, []chan time.Time{at(256)}); got != 2000 {
		t.Errorf("a prompt of 512 tokens in 256 ms: %v tokens/s, want 2000", got)
	}
	// Both have had a first token after 100 ms; five more come until 350 ms.
	got := (benchCase{Batch: 2, Prompt: 8, Output: 3}).speed(start, []chan time.Time{at(50, 150, 250, 350), at(100, 200, 300)})
	if want := 5 / 0.250; got < want*0.999 || got > want*1.001 {
		t.Errorf("%v tokens/s, want %v", got, want)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range [][]float64{{3}, {3, 1, 9}, {2, 9, 1, 4}} {
		if got := median(c); got != 3 {
			t.Errorf("median of %v is %v", c, got)
		}
	}
}

func TestWindows(t *testing.T) {
	ids := []int32{1, 2, 3, 4, 5, 6, 7}
	var got [][]int32
	for _, req := range windows(ids, 3) {
		got = append(got, req.TokenIDs)
		if *req.Params.PromptLogprobs != 0 || !req.Params.Logprobs {
			t.Errorf("%+v does not ask for the prompt's probabilities", req.Params)
		}
	}
	if want := [][]int32{{1, 2, 3}, {4, 5, 6}}; !slices.EqualFunc(got, want, slices.Equal[[]int32]) {
		t.Errorf("windows %v, want %v", got, want)
	}
	if len(windows(ids[:1], 3)) != 0 {
		t.Error("a single token predicts nothing")
	}
}
