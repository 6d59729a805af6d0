package engine

import (
	"fmt"
	"math"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/ops"
	"github.com/minisgl/minisgl/go/internal/sampler"
)

// logitWork is what the requests of a batch want done with logits beside
// sampling: penalties, biases and log-probabilities. A batch that wants none of it
// has none of its operations, and its memory on the device is allocated when it
// is first needed.
type logitWork struct {
	block       int          // prompt rows whose logits there is room for at once
	promptRows  array[int32] // the batch's rows whose next tokens prompt is about
	prompt      scores       // of the prompts' tokens
	sampled     scores       // of the sampled ones
	adjustments array[ops.Adjustment]
	data        array[int32] // of the adjustments
}

func (w *logitWork) reset() {
	w.promptRows.host, w.data.host, w.adjustments.host = w.promptRows.host[:0], w.data.host[:0], w.adjustments.host[:0]
	w.prompt.reset()
	w.sampled.reset()
}

// addPrompt asks for the log-probabilities of a prompt's tokens; row is the
// batch's row of the request's first position.
func (w *logitWork) addPrompt(seq core.Seq, row int) {
	from, to := seq.Scored()
	for p := from; p < to; p++ {
		at := len(w.promptRows.host)
		w.promptRows.host = append(w.promptRows.host, int32(row+p-seq.Start))
		w.prompt.add(seq.Req.UID, sampler.PromptScoring(seq.Req, p, at%w.block))
	}
}

// addSample asks for what the token at a position of a request's sequence needs;
// row is that of its logits.
func (w *logitWork) addSample(r *core.Req, position, row int) {
	if sampler.Adjusts(r, position) {
		var a ops.Adjustment
		a, w.data.host = sampler.Adjustment(r, position, row, w.data.host)
		w.adjustments.host = append(w.adjustments.host, a)
	}
	if r.Params.Logprobs {
		w.sampled.add(r.UID, sampler.Scoring(r.Params, row))
	}
}

// write transfers what was asked for, and makes room for the results.
func (w *logitWork) write(dev device.Device) error {
	if err := w.promptRows.put(dev, 1); err != nil {
		return err
	}
	if err := w.adjustments.put(dev, ops.AdjustmentWords); err != nil {
		return err
	}
	if err := w.data.put(dev, 1); err != nil {
		return err
	}
	if err := w.prompt.write(dev); err != nil {
		return err
	}
	return w.sampled.write(dev)
}

// put transfers the host's values, in a larger tensor if they outgrow it. The
// device keeps the smaller ones, which are less than that together.
func (a *array[T]) put(dev device.Device, words int) error {
	if len(a.host) == 0 {
		return nil
	}
	if err := a.reserve(dev, len(a.host), words); err != nil {
		return err
	}
	return dev.Write(a.tensor.Addr, ops.Bytes(a.host))
}

func (a *array[T]) reserve(dev device.Device, n, words int) error {
	if n <= int(a.tensor.Rows) {
		return nil
	}
	alloc := allocator{dev: dev}
	a.tensor = alloc.tensor(max(n, 2*int(a.tensor.Rows)), words, ops.I32)
	return alloc.err
}

// blocks is the number of blocks of prompt rows.
func (w *logitWork) blocks() int { return (len(w.promptRows.host) + w.block - 1) / w.block }

// span is the range of prompt rows of a block.
func (w *logitWork) span(i int) (from, n int) {
	from = i * w.block
	return from, min(w.block, len(w.promptRows.host)-from)
}

func (w *logitWork) rowsOf(i int) ops.Tensor {
	from, n := w.span(i)
	return ops.New(w.promptRows.tensor.Addr, 1, len(w.promptRows.host), ops.I32).Columns(from, n)
}

// recordPrompt takes a block's log-probabilities.
func (w *logitWork) recordPrompt(l *ops.List, logits ops.Tensor, i, vocab int) {
	from, n := w.span(i)
	w.prompt.record(l, logits, ops.Tensor{}, from, n, vocab)
}

// recordAdjust changes the logits before they are sampled.
func (w *logitWork) recordAdjust(l *ops.List, logits, last ops.Tensor, vocab int) {
	if n := len(w.adjustments.host); n > 0 {
		data := ops.New(w.data.tensor.Addr, 1, len(w.data.host), ops.I32)
		l.Adjust(logits, w.adjustments.tensor.Head(n), data, last, vocab)
	}
}

// recordSamples takes the sampled tokens' log-probabilities.
func (w *logitWork) recordSamples(l *ops.List, logits, next ops.Tensor, vocab int) {
	if n := len(w.sampled.of); n > 0 {
		w.sampled.record(l, logits, next, 0, n, vocab)
	}
}

// read returns the log-probabilities, the prompts' first.
func (w *logitWork) read(dev device.Device, next []int32) ([]core.Score, error) {
	prompt, err := w.prompt.read(dev, nil)
	if err != nil {
		return nil, err
	}
	sampled, err := w.sampled.read(dev, next)
	return append(prompt, sampled...), err
}

// scores are log-probabilities of tokens.
type scores struct {
	of     []core.UID
	args   array[ops.Scoring]
	result array[int32] // rows of scoreWords
}

// scoreWords is the width of a row of Logprobs' results.
const scoreWords = 1 + 2*core.MaxTopLogprobs

func (s *scores) reset() { s.of, s.args.host = s.of[:0], s.args.host[:0] }

func (s *scores) add(uid core.UID, args ops.Scoring) {
	s.of, s.args.host = append(s.of, uid), append(s.args.host, args)
}

func (s *scores) write(dev device.Device) error {
	if err := s.args.put(dev, ops.ScoringWords); err != nil {
		return err
	}
	return s.result.reserve(dev, len(s.of), scoreWords)
}

// record takes rows [from, from+n).
func (s *scores) record(l *ops.List, logits, next ops.Tensor, from, n, vocab int) {
	l.Logprobs(s.result.tensor.Below(from, n), logits, s.args.tensor.Below(from, n), next, vocab)
}

// read returns the results; next are the tokens that the batch sampled.
func (s *scores) read(dev device.Device, next []int32) ([]core.Score, error) {
	if len(s.of) == 0 {
		return nil, nil
	}
	words := make([]int32, len(s.of)*scoreWords)
	if err := dev.Read(ops.Bytes(words), s.result.tensor.Addr); err != nil {
		return nil, fmt.Errorf("reading log-probabilities: %w", err)
	}
	list := make([]core.Score, len(s.of))
	for i, uid := range s.of {
		args, row := s.args.host[i], words[i*scoreWords:]
		list[i] = core.Score{UID: uid, Prompt: args.Token >= 0, TokenLogprob: core.TokenLogprob{Token: args.Token, Logprob: float(row[0])}}
		if args.Token < 0 {
			list[i].Token = next[args.Row]
		}
		for k := range int(args.Top) {
			list[i].Top = append(list[i].Top, core.Logprob{Token: row[1+2*k], Logprob: float(row[2+2*k])})
		}
	}
	return list, nil
}

func float(bits int32) float32 { return math.Float32frombits(uint32(bits)) }
