package native

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minisgl/minisgl/go/llm"
)

// openTiny loads a small random model on the reference device.
func openTiny(t *testing.T) int64 {
	t.Helper()
	job, err := OpenEngine(`{"model_path":"../../go/internal/model/testdata/tiny/llama-tied","device":"ref","dtype":"float32","num_page_override":512}`)
	if err != nil {
		t.Fatal(err)
	}
	finish(t, job)
	text, err := Result(job)
	if err != nil {
		t.Fatal(err)
	}
	var handle int64
	if err := json.Unmarshal([]byte(text), &handle); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := CloseEngine(handle); err != nil {
			t.Error(err)
		}
		if n := tasks.len(); n != 0 {
			t.Errorf("%d jobs are left", n)
		}
	})
	return handle
}

const twoPrompts = `[
	{"token_ids":[1,2,3],"params":{"temperature":0,"top_k":-1,"top_p":1,"min_p":0,"repetition_penalty":1,"max_tokens":4,"ignore_eos":true}},
	{"token_ids":[4,5],"params":{"temperature":0,"top_k":-1,"top_p":1,"min_p":0,"repetition_penalty":1,"max_tokens":3,"ignore_eos":true}}]`

func hooked(t *testing.T, engine int64) int64 {
	t.Helper()
	job, err := GenerateHooked(engine, twoPrompts)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// next returns the next batch, or false when the job has ended.
func next(t *testing.T, job int64) (b batch, ok bool) {
	t.Helper()
	task, err := taskOf(job)
	if err != nil {
		t.Fatal(err)
	}
	for !task.ended() {
		text, err := NextBatch(job, 20)
		if err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := json.Unmarshal([]byte(text), &b); err != nil {
				t.Fatal(err)
			}
			return b, true
		}
	}
	return b, false
}

func mustNext(t *testing.T, job int64) batch {
	t.Helper()
	b, ok := next(t, job)
	if !ok {
		t.Fatal("the job ended without a batch")
	}
	return b
}

// drive runs all batches of a job and returns them with its outputs.
func drive(t *testing.T, job int64) (batches []batch, outs []output) {
	t.Helper()
	for b, ok := next(t, job); ok; b, ok = next(t, job) {
		if err := runAndEnd(job, b.Number); err != nil {
			t.Fatal(err)
		}
		batches = append(batches, b)
	}
	return batches, result(t, job)
}

// runAndEnd runs a batch and lets the engine go on.
func runAndEnd(job, number int64) error {
	_, ran := RunBatch(job, number)
	_, ended := EndBatch(job, number)
	return errors.Join(ran, ended)
}

func result(t *testing.T, job int64) (outs []output) {
	t.Helper()
	text, err := Result(job)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &outs); err != nil {
		t.Fatal(err)
	}
	return outs
}

// generate runs the two prompts without a hook and returns their tokens.
func generate(t *testing.T, engine int64) [][]int32 {
	t.Helper()
	job, err := Generate(engine, twoPrompts)
	if err != nil {
		t.Fatal(err)
	}
	finish(t, job)
	return tokensOf(result(t, job))
}

func tokensOf(outs []output) (ids [][]int32) {
	for _, o := range outs {
		ids = append(ids, o.TokenIDs)
	}
	return ids
}

func wantUsable(t *testing.T, engine int64, want [][]int32) {
	t.Helper()
	if got := generate(t, engine); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("afterwards: tokens %v, want %v", got, want)
	}
	e, err := engineOf(engine)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.CheckIntegrity(); err != nil {
		t.Error(err)
	}
	s := e.Stats()
	if s.FreePages+s.EvictablePages != s.TotalPages {
		t.Errorf("pages are still held: %+v", s)
	}
}

func TestHookedJobPassesEveryBatch(t *testing.T) {
	engine := openTiny(t)
	job := hooked(t, engine)
	batches, outs := drive(t, job)
	want := generate(t, engine)
	if got := tokensOf(outs); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("tokens %v, without the hook %v", got, want)
	}
	if len(batches) != 4 || !batches[0].Prefill || batches[1].Prefill {
		t.Fatalf("batches %+v, want a prefill and three decode steps", batches)
	}
	first := batches[0]
	if !slices.Equal(first.InputIDs, []int32{1, 2, 3, 4, 5}) || !slices.Equal(first.Positions, []int32{0, 1, 2, 0, 1}) ||
		!slices.Equal(first.Extend, []int{3, 2}) || len(first.UIDs) != 2 {
		t.Errorf("the prefill is %+v", first)
	}
	if b := batches[1]; !slices.Equal(b.InputIDs, []int32{want[0][0], want[1][0]}) || !slices.Equal(b.Positions, []int32{3, 2}) {
		t.Errorf("the first decode step is %+v, want input %v", b, want)
	}
	if b := batches[3]; !slices.Equal(b.UIDs, first.UIDs[:1]) {
		t.Errorf("the last decode step is %+v, want the longer request alone", b)
	}
	wantUsable(t, engine, want)
}

func TestBatchMustRunOnce(t *testing.T) {
	engine := openTiny(t)
	want := generate(t, engine)
	for _, tc := range []struct {
		runs int
		hint string
	}{{0, "must call the original"}, {2, "twice"}} {
		job := hooked(t, engine)
		b := mustNext(t, job)
		var runErr error
		for range tc.runs {
			_, runErr = RunBatch(job, b.Number)
		}
		_, err := EndBatch(job, b.Number)
		if told := kindOf(t, err); told.Kind != kindInternal || !strings.Contains(told.Message, tc.hint) {
			t.Errorf("%d runs: EndBatch says %+v", tc.runs, told)
		}
		if tc.runs == 2 && !strings.Contains(kindOf(t, runErr).Message, tc.hint) {
			t.Errorf("the second run says %v", runErr)
		}
		finish(t, job)
		if _, err := Result(job); !strings.Contains(kindOf(t, err).Message, tc.hint) {
			t.Errorf("%d runs: the job ended with %v", tc.runs, err)
		}
		wantUsable(t, engine, want)
	}
}

func TestCancelReleasesAHookedJob(t *testing.T) {
	engine := openTiny(t)
	want := generate(t, engine)
	for _, state := range []string{"not attached", "waiting for NextBatch", "taken", "run"} {
		job := hooked(t, engine)
		var b batch
		switch state {
		case "waiting for NextBatch":
			b = mustNext(t, job)
			if err := runAndEnd(job, b.Number); err != nil {
				t.Fatal(err)
			}
		case "taken", "run":
			b = mustNext(t, job)
			if state == "run" {
				if _, err := RunBatch(job, b.Number); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := Cancel(job); err != nil {
			t.Fatal(err)
		}
		finish(t, job)
		if b.Number > 0 {
			if _, err := EndBatch(job, b.Number); kindOf(t, err).Kind != kindClosed {
				t.Errorf("%s: EndBatch after the end says %v", state, err)
			}
		}
		if _, err := Result(job); kindOf(t, err).Kind != kindCanceled {
			t.Errorf("%s: the job ended with %v", state, err)
		}
		wantUsable(t, engine, want)
	}
}

func TestForgottenHookedJobEnds(t *testing.T) {
	engine := openTiny(t)
	want := generate(t, engine)
	job := hooked(t, engine)
	mustNext(t, job)
	if _, err := Forget(job); err != nil {
		t.Fatal(err)
	}
	wantUsable(t, engine, want) // a job that a hook holds up would not end
}

// TestCloseEngineReleasesHooks closes an engine while one hooked job's batch
// waits for its caller, a second job waits for the first, and a third one has no
// caller.
func TestCloseEngineReleasesHooks(t *testing.T) {
	engine := openTiny(t)
	jobs := []int64{hooked(t, engine), hooked(t, engine), hooked(t, engine)}
	b := mustNext(t, jobs[0])
	if text, err := NextBatch(jobs[1], 20); text != "" || err != nil {
		t.Fatalf("the second job gave %q, %v while the first runs", text, err)
	}
	if _, err := CloseEngine(engine); err != nil {
		t.Fatal(err)
	}
	for _, job := range jobs {
		finish(t, job)
		if _, err := Result(job); kindOf(t, err).Kind != kindClosed {
			t.Errorf("the job ended with %v", err)
		}
	}
	if _, err := RunBatch(jobs[0], b.Number); err == nil {
		t.Error("a batch of a closed engine ran")
	}
}

func TestHookedJobsTakeTurns(t *testing.T) {
	engine := openTiny(t)
	first, second := hooked(t, engine), hooked(t, engine)
	b := mustNext(t, first)
	if text, err := NextBatch(second, 20); text != "" || err != nil {
		t.Fatalf("the second job gave %q, %v while the first runs", text, err)
	}
	if err := runAndEnd(first, b.Number); err != nil {
		t.Fatal(err)
	}
	_, outs := drive(t, first)
	_, again := drive(t, second)
	if !slices.EqualFunc(tokensOf(outs), tokensOf(again), slices.Equal) {
		t.Errorf("tokens %v, then %v", outs, again)
	}
}

func TestStaleBatchesAreRefused(t *testing.T) {
	engine := openTiny(t)
	job := hooked(t, engine)
	if _, err := RunBatch(job, 1); kindOf(t, err).Kind != kindClosed {
		t.Errorf("before the first batch: %v", err)
	}
	b := mustNext(t, job)
	if err := runAndEnd(job, b.Number); err != nil {
		t.Fatal(err)
	}
	for _, use := range []func(job, number int64) (bool, error){RunBatch, EndBatch} {
		if _, err := use(job, b.Number); kindOf(t, err).Kind != kindClosed {
			t.Errorf("after its end: %v", err)
		}
	}
	drive(t, job)
	plain, err := Generate(engine, twoPrompts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NextBatch(plain, 0); kindOf(t, err).Kind != kindInternal {
		t.Errorf("a job without a hook: %v", err)
	}
	finish(t, plain)
	result(t, plain)
	if _, err := RunBatch(99999, 1); kindOf(t, err).Kind != kindInternal {
		t.Errorf("an unknown job: %v", err)
	}
}

// TestServeKeepsTheFirstFailure checks that a caller can't make a failed batch a
// good one, whatever it calls afterwards.
func TestServeKeepsTheFirstFailure(t *testing.T) {
	h := newHook()
	broken := errors.New("the device is broken")
	served := make(chan error, 1)
	go func() {
		served <- h.forward(nil, llm.BatchInfo{}, func() error { return broken })
	}()
	turn := <-h.turns
	for range 2 {
		if err := turn.ask(turn.runs); !errors.Is(err, broken) {
			t.Errorf("the run says %v", err)
		}
	}
	if err := turn.ask(turn.ends); !errors.Is(err, broken) {
		t.Errorf("the end says %v", err)
	}
	select {
	case err := <-served:
		if !errors.Is(err, broken) {
			t.Errorf("the engine is told %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the turn does not end")
	}
}

func TestPrefillBudget(t *testing.T) {
	engine := openTiny(t)
	if n, err := PrefillBudget(engine); n != 8192 || err != nil {
		t.Errorf("the budget is %d, %v", n, err)
	}
	if _, err := SetPrefillBudget(engine, 2); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{0, -1, 8193, 1 << 62} {
		_, err := SetPrefillBudget(engine, n)
		if told := kindOf(t, err); told.Kind != kindInvalid || told.Field != "max_extend_tokens" {
			t.Errorf("%d: %+v", n, told)
		}
	}
	batches, _ := drive(t, hooked(t, engine))
	if !slices.Equal(batches[0].Positions, []int32{0, 1}) {
		t.Errorf("the first batch has positions %v, want 2", batches[0].Positions)
	}
	if n, err := PrefillBudget(engine); n != 2 || err != nil {
		t.Errorf("the budget is %d, %v", n, err)
	}
	if _, err := PrefillBudget(99999); kindOf(t, err).Kind != kindClosed {
		t.Errorf("an unknown engine: %v", err)
	}
}
