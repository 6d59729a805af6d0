package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// A long run is asked for by these variables; make soak and make bench-online set
// them. Without them the soak is a short one of a tiny model.
const (
	soakVariable   = "MINISGL_SOAK"   // a duration; the model is then smollm2-135m, with 500 clients
	onlineVariable = "MINISGL_ONLINE" // the number of rounds
)

const realModel = "smollm2-135m"

// realServer serves a model on a port of this machine.
func realServer(t *testing.T, cfg llm.Config) (l *llm.LLM, url string, client *http.Client) {
	t.Helper()
	cfg.Logger = discard()
	l, err := llm.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := New(Config{Logger: discard()})
	s.SetEngine(LLM{LLM: l})
	url, client = listen(t, s)
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = 1000
	return l, url, client
}

// ask is a chat with its whole answer, worked out alone.
type ask struct {
	body string
	want string
}

// asks makes chats of several lengths, greedy and sampled, and answers each alone.
func asks(t *testing.T, client *http.Client, url string) []ask {
	t.Helper()
	list := make([]ask, 24)
	for i := range list {
		list[i].body = fmt.Sprintf(`{"stream":true,"max_tokens":%d,"ignore_eos":true,"temperature":%d,"seed":%d,"presence_penalty":%g,"messages":[{"role":"user","content":"%s"}]}`,
			8+3*(i%12), i%2, i, float64(i%3)*0.5, strings.Repeat("Tell me more about this. ", 1+i%7))
		got, err := read(t.Context(), client, url, list[i].body, -1)
		if err != nil {
			t.Fatal(err)
		}
		list[i].want = got
	}
	return list
}

// read sends a chat that streams and returns its text. It leaves after so many
// events, unless that is below zero.
func read(ctx context.Context, client *http.Client, url, body string, leave int) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", url+chatPath, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		refusal, _ := io.ReadAll(resp.Body)
		return "", fmt.Errorf("status %d: %s", resp.StatusCode, refusal)
	}
	var text strings.Builder
	events := openai.NewEventReader(bufio.NewReader(resp.Body), 0)
	for n := 0; n != leave; n++ {
		ev, err := events.Next()
		if err != nil {
			return "", err
		}
		if ev.Data == "[DONE]" {
			return text.String(), nil
		}
		var chunk openai.ChatChunk
		if err := json.Unmarshal([]byte(ev.Data), &chunk); err != nil || len(chunk.Choices) != 1 {
			return "", fmt.Errorf("%w: %s", err, ev.Data)
		}
		if c := chunk.Choices[0].Delta.Content; c != nil {
			text.WriteString(*c)
		}
	}
	return "", nil
}

// level is what a leak shows in.
type level struct {
	goroutines, files int
	rss               int64 // bytes
}

func levelNow(t *testing.T, client *http.Client) level {
	t.Helper()
	client.CloseIdleConnections()
	time.Sleep(200 * time.Millisecond) // for the server's side of the connections
	runtime.GC()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Logf("no count of files: %v", err)
	}
	status, _ := os.ReadFile("/proc/self/status")
	var kib int64
	if i := bytes.Index(status, []byte("VmRSS:")); i >= 0 {
		fmt.Sscanf(string(status[i:]), "VmRSS: %d kB", &kib)
	}
	return level{runtime.NumGoroutine(), len(files), kib << 10}
}

// TestSoak: many clients stream at once for a while, some leave in the middle;
// every answer is what it is alone, and nothing is left behind.
func TestSoak(t *testing.T) {
	cfg, clients, duration := llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 2048}, 64, time.Second
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		cfg, clients = llm.Config{Model: realModel}, 500
	}
	l, url, client := realServer(t, cfg)
	list := asks(t, client, url)
	begin := levelNow(t, client)
	var answers, left atomic.Int64
	var middle level
	half := time.Now().Add(duration / 2)
	end := time.Now().Add(duration)
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			for time.Now().Before(end) {
				a, leave := list[rng.IntN(len(list))], -1
				if rng.IntN(3) == 0 {
					leave = rng.IntN(12)
				}
				got, err := read(t.Context(), client, url, a.body, leave)
				switch {
				case err != nil:
					t.Errorf("client %d: %v", i, err)
					return
				case got == "" && leave >= 0:
					left.Add(1)
				case got != a.want:
					t.Errorf("client %d: got %q, alone it is %q", i, got, a.want)
					return
				default:
					answers.Add(1)
				}
			}
		})
	}
	running.Go(func() {
		time.Sleep(time.Until(half))
		status := l.Stats()
		middle = level{rss: memory()}
		t.Logf("in the middle: %d run, %d wait, %d MiB", status.Running, status.Waiting, middle.rss>>20)
	})
	running.Wait()
	eventually(t, "all requests have left the engine", func() bool {
		st := l.Stats()
		return st.Running == 0 && st.Waiting == 0 && st.FreePages+st.EvictablePages == st.TotalPages
	})
	if err := l.CheckIntegrity(); err != nil {
		t.Error(err)
	}
	after := levelNow(t, client)
	t.Logf("%d answers, %d clients left early, %d preemptions, in %v; goroutines %d -> %d, files %d -> %d, RSS %d -> %d -> %d MiB", answers.Load(), left.Load(),
		l.Stats().Preemptions, duration, begin.goroutines, after.goroutines, begin.files, after.files, begin.rss>>20, middle.rss>>20, after.rss>>20)
	if answers.Load() == 0 || left.Load() == 0 {
		t.Error("nobody got an answer, or nobody left")
	}
	if after.goroutines > begin.goroutines+5 || after.files > begin.files+5 {
		t.Errorf("left behind: goroutines %d -> %d, files %d -> %d", begin.goroutines, after.goroutines, begin.files, after.files)
	}
	const slack = 64 << 20
	if middle.rss > 0 && after.rss > middle.rss+slack {
		t.Errorf("memory grows: %d MiB in the middle, %d after the end", middle.rss>>20, after.rss>>20)
	}
}

func memory() int64 {
	statm, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(statm))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// TestOnlineNearlyEqualsOffline measures what HTTP, template, tokenizer,
// detokenizer and SSE cost: the same load by 16 clients and by llm.Generate, in
// turns. The clients are in this process, so their share counts as the server's.
func TestOnlineNearlyEqualsOffline(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv(onlineVariable))
	if err != nil || rounds < 1 {
		t.Skipf("it takes minutes: make bench-online, or %s=5, the number of rounds", onlineVariable)
	}
	const clients, requests, output = 16, 64, 64
	l, url, client := realServer(t, llm.Config{Model: realModel, MaxRunningReq: clients})
	bodies, offline := make([]string, requests), make([]llm.Request, requests)
	for i := range bodies {
		content := fmt.Sprintf("%d. ", i) + strings.Repeat("What do you know of the sea and its ships? ", 1+i%12)
		bodies[i] = fmt.Sprintf(`{"stream":true,"max_tokens":%d,"ignore_eos":true,"temperature":0,"messages":[{"role":"user","content":%q}]}`, output, content)
		ids, err := l.EncodeChat([]tokenizer.Message{{Role: "user", Content: content}}, tokenizer.TemplateOptions{AddGenerationPrompt: true})
		if err != nil {
			t.Fatal(err)
		}
		params := llm.DefaultSampling()
		params.MaxTokens, params.IgnoreEOS = output, true
		offline[i] = llm.Request{TokenIDs: ids, Params: params}
	}
	timed := func(run func()) float64 {
		if _, err := l.FlushCache(); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		run()
		return requests * output / time.Since(begin).Seconds()
	}
	generate := func() {
		if _, err := l.Generate(t.Context(), offline, nil); err != nil {
			t.Fatal(err)
		}
	}
	serve := func() {
		var next atomic.Int64
		var workers sync.WaitGroup
		for range clients {
			workers.Go(func() {
				for i := next.Add(1) - 1; i < requests; i = next.Add(1) - 1 {
					if _, err := read(t.Context(), client, url, bodies[i], -1); err != nil {
						t.Error(err)
					}
				}
			})
		}
		workers.Wait()
	}
	timed(generate) // warm
	timed(serve)
	var off, on, cost []float64
	for range rounds {
		off, on = append(off, timed(generate)), append(on, timed(serve))
		last := len(off) - 1
		cost = append(cost, 100*(1-on[last]/off[last]))
		t.Logf("offline %.1f, online %.1f tokens/s: %.1f%% less", off[last], on[last], cost[last])
	}
	t.Logf("medians of %d rounds: offline %.1f, online %.1f tokens/s; the server costs %.1f%% (the aim is at most 5%%)", rounds, median(off), median(on), median(cost))
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
