package serving

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/minisgl/minisgl/bench/internal/arrival"
	"github.com/minisgl/minisgl/bench/internal/dataset"
	"github.com/minisgl/minisgl/bench/internal/loadgen"
)

// offer is what a run sends, and when.
type offer struct {
	requests []loadgen.Request
	schedule []time.Duration
	after    []int // see loadgen.Config
	trace    bool  // sent at recorded times
	turns    bool  // requests are the turns of conversations
}

// offer makes the requests and the schedule of a load. Random numbers are drawn
// in the order in which sglang's client draws them.
func (b *Bench) offer(load Load) (*offer, error) {
	src := dataset.NewSource(b.o.Dataset.path, load.NumPrompts, load.Seed)
	rows, err := b.rows(src)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("the dataset %s has no usable request in %s", b.o.Dataset.name, b.o.Dataset.path)
	}
	off := &offer{requests: make([]loadgen.Request, len(rows)), turns: b.o.Dataset.conversations()}
	key := fmt.Sprintf("%08x_%s", load.Seed, time.Now().Format("20060102150405"))
	for i, row := range rows {
		if off.requests[i], err = b.request(row, key); err != nil {
			return nil, err
		}
	}
	if b.o.Dataset.chained() {
		for _, row := range rows {
			off.after = append(off.after, row.After)
		}
	}
	if off.trace = b.recordedTimes(); off.trace {
		for i := range off.requests {
			b.chooseLoRA(off.requests[i:i+1], src)
		}
		for _, row := range rows {
			off.schedule = append(off.schedule, time.Duration(float64(row.At)*b.o.Dataset.slowdown))
		}
		return off, nil
	}
	return off, b.arrivals(off, load, src)
}

// arrivals draws when each request or conversation begins, its adapter before the
// gap behind it. The later turns of a conversation wait for the ones before.
func (b *Bench) arrivals(off *offer, load Load, src *dataset.Source) error {
	talks := off.talks()
	i := 0
	next := func() {
		b.chooseLoRA(talks[i], src)
		i++
	}
	starts, err := arrival.Gaps(load.Rate, len(talks), func() float64 {
		next()
		if math.IsInf(load.Rate, 1) {
			return 0
		}
		return src.Numpy.Exponential(1)
	})
	if err != nil {
		return err
	}
	next()
	for i, talk := range talks {
		for range talk {
			off.schedule = append(off.schedule, starts[i])
		}
	}
	return nil
}

// talks returns the requests of each conversation; a request that is none stands
// alone.
func (off *offer) talks() [][]loadgen.Request {
	var out [][]loadgen.Request
	begin := 0
	for i := 1; i <= len(off.requests); i++ {
		if i == len(off.requests) || !off.turns || off.after[i] < 0 {
			out = append(out, off.requests[begin:i])
			begin = i
		}
	}
	return out
}

// recordedTimes tells whether requests go out at the times of a trace.
func (b *Bench) recordedTimes() bool {
	_, err := dataset.ParseTraceKind(b.o.Dataset.name)
	return err == nil && (b.o.Dataset.traceTimes || !b.o.rateSet)
}

func (b *Bench) rows(src *dataset.Source) ([]dataset.Row, error) {
	d := &b.o.Dataset
	src.AsIDs, src.Vocab, src.OutputLen, src.ContextLen = d.tokenizePrompt, d.vocab, d.shareGPTOutput, d.shareGPTContext
	src.PromptSuffix, src.Template, src.From, src.To = d.promptSuffix, d.template, d.from, d.to
	if b.tok != nil {
		src.Tokenizer = b.tok
	}
	switch d.name {
	case "random-ids":
		return src.RandomIDs(d.random)
	case "random":
		return src.Random(d.random)
	case "sharegpt":
		return src.ShareGPT()
	case "custom":
		return src.Custom()
	case "openai":
		return src.OpenAI()
	case "hellaswag":
		return src.HellaSwag()
	case "mmlu":
		return src.MMLU()
	case "generated-shared-prefix":
		return src.SharedPrefix(d.prefix)
	case "multi-turn":
		return src.Turns(d.random, d.turns)
	}
	kind, err := dataset.ParseTraceKind(d.name)
	if err != nil {
		return nil, err
	}
	rows, err := src.Trace(kind)
	if err != nil || d.rounds == 1 {
		return rows, err
	}
	return dataset.Rounds(rows, d.rounds)
}

func (b *Bench) request(row dataset.Row, key string) (loadgen.Request, error) {
	req := loadgen.Request{Text: row.Text, IDs: row.IDs, Messages: row.Messages, InputLen: max(row.PromptLen, 0), MaxTokens: row.OutputLen, Extra: row.Extra}
	if err := b.o.backend.api.Check(req); err != nil {
		return req, fmt.Errorf("--backend %s with --dataset-name %s: %w", b.o.Backend, b.o.Dataset.name, err)
	}
	if b.o.Dataset.routingKey && b.o.Dataset.name == "generated-shared-prefix" {
		req.Header = map[string]string{"X-SMG-Routing-Key": key + "_" + strconv.Itoa(row.Group)}
	}
	return req, nil
}

// chooseLoRA gives the turns of a conversation one adapter: as the model's name to
// OpenAI's APIs, as lora_path to sglang's own.
func (b *Bench) chooseLoRA(requests []loadgen.Request, src *dataset.Source) {
	if len(b.o.loras.Names) == 0 {
		return
	}
	field := "model"
	if b.o.backend.api == loadgen.Generate {
		field = "lora_path"
	}
	name, _ := json.Marshal(b.loras.Pick(src)) // a string always encodes
	for i := range requests {
		extra := map[string]json.RawMessage{field: name}
		maps.Copy(extra, requests[i].Extra)
		requests[i].Extra = extra
	}
}

// digest names the load: two runs with the same one sent the same requests at the same times.
func (off *offer) digest() string {
	requests, times := sha256.New(), sha256.New()
	for i := range off.requests {
		data, err := json.Marshal(off.requests[i])
		if err != nil {
			data = []byte(strings.ToValidUTF8(off.requests[i].Text, "?"))
		}
		_, _ = requests.Write(data) // never fails
		_ = binary.Write(times, binary.LittleEndian, int64(off.schedule[i]))
	}
	return fmt.Sprintf("requests %s, schedule %s (sha256)", hex.EncodeToString(requests.Sum(nil)[:6]), hex.EncodeToString(times.Sum(nil)[:6]))
}
