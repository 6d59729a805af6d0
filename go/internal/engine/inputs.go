package engine

import (
	"fmt"
	"slices"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/model"
	"github.com/minisgl/minisgl/go/internal/ops"
	"github.com/minisgl/minisgl/go/internal/sampler"
)

// inputs is one set of a batch's input tensors: at fixed device addresses, with
// a copy on the host that fill writes and write transfers.
type inputs struct {
	ids, positions, slots array[int32]        // one for each row
	table                 array[int32]        // pages of each request, as wide as the batch needs
	cuQ, kvLens           array[int32]        // one for each request
	logitRows             array[int32]        // one for each sample
	sampling              array[ops.Sampling] // one for each sample
	logits                logitWork           // what else is to be done with the logits
	masks                 masks               // which tokens grammars allow
	next                  ops.Tensor          // sampled tokens, I32 [1, maxSamples]
	result                []int32             // the host's copy of next
	pageSize              int
	pages                 int       // width of table
	leastPages            int       // the least that is
	sizes                 []int     // that batches of decoding requests are padded to
	nobody                *core.Req // whose rows the padding is
	samples               int       // that requests want; those of the padding come behind
	list                  ops.List
	draw                  ops.List     // the sampling, if masks hold it up
	drawn                 ops.Tensor   // the logits that it samples from
	model                 model.Inputs // what the model sees; here, so that a step allocates nothing
}

// array is a device tensor and the host's values for it.
type array[T element] struct {
	tensor ops.Tensor
	host   []T
}

type element interface {
	int32 | ops.Sampling | ops.Adjustment | ops.Scoring
}

func newArray[T element](a *allocator, n, words int) array[T] {
	return array[T]{tensor: a.tensor(n, words, ops.I32), host: make([]T, 0, n)}
}

func newInputs(a *allocator, cfg Config, rows int) *inputs {
	return &inputs{
		ids:       newArray[int32](a, rows, 1),
		positions: newArray[int32](a, rows, 1),
		slots:     newArray[int32](a, rows, 1),
		table:     array[int32]{tensor: a.tensor(cfg.MaxRunning, cfg.pagesOf(cfg.MaxSeqLen), ops.I32)},
		cuQ:       newArray[int32](a, cfg.MaxRunning+1, 1),
		kvLens:    newArray[int32](a, cfg.MaxRunning, 1),
		logitRows: newArray[int32](a, cfg.maxSamples(), 1),
		sampling:  newArray[ops.Sampling](a, cfg.maxSamples(), ops.SamplingWords),
		next:      a.tensor(1, cfg.maxSamples(), ops.I32),
		logits:    logitWork{block: cfg.maxSamples()},
		masks:     masks{vocab: cfg.Vocab},
		result:    make([]int32, cfg.maxSamples()),
		pageSize:  cfg.PageSize,
	}
}

// padTo lets batches of decoding requests be padded to these sizes.
func (in *inputs) padTo(sizes []int, cfg Config) {
	if len(sizes) > 0 {
		in.sizes, in.nobody, in.leastPages = sizes, nobody(cfg.NumPages), cfg.pagesOf(graphPositions)
	}
}

// fill describes a batch on the host.
func (in *inputs) fill(b *core.Batch) error {
	if b.Tokens > int(in.ids.tensor.Rows) || len(b.Seqs) > int(in.kvLens.tensor.Rows) {
		return fmt.Errorf("engine: a batch of %d tokens in %d requests exceeds the %d in %d that there is room for",
			b.Tokens, len(b.Seqs), in.ids.tensor.Rows, in.kvLens.tensor.Rows)
	}
	in.reset()
	for _, seq := range b.Seqs {
		in.pages = max(in.pages, (seq.End+in.pageSize-1)/in.pageSize)
	}
	in.pages = tableWidth(in.pages, in.leastPages, int(in.table.tensor.Cols))
	for _, seq := range b.Seqs {
		in.add(seq)
	}
	in.samples = len(in.logitRows.host)
	if decodes(b) {
		for range padded(in.sizes, len(b.Seqs)) - len(b.Seqs) {
			in.add(core.Seq{Req: in.nobody, End: 1, Sample: true})
		}
	}
	return nil
}

func (in *inputs) reset() {
	for _, a := range []*array[int32]{&in.ids, &in.positions, &in.slots, &in.table, &in.cuQ, &in.kvLens, &in.logitRows} {
		a.host = a.host[:0]
	}
	in.sampling.host = in.sampling.host[:0]
	in.logits.reset()
	in.masks.reset()
	in.cuQ.host = append(in.cuQ.host, 0)
	in.pages = 0
}

// add appends one request's rows.
func (in *inputs) add(seq core.Seq) {
	r := seq.Req
	for p := seq.Start; p < seq.End; p++ {
		page := int(r.Pages[p/in.pageSize])
		in.ids.host = append(in.ids.host, seq.Input(p))
		in.positions.host = append(in.positions.host, int32(p))
		in.slots.host = append(in.slots.host, int32(page*in.pageSize+p%in.pageSize))
	}
	in.addPages(r.Pages[:(seq.End+in.pageSize-1)/in.pageSize])
	in.cuQ.host = append(in.cuQ.host, int32(len(in.ids.host)))
	in.kvLens.host = append(in.kvLens.host, int32(seq.End))
	in.logits.addPrompt(seq, len(in.ids.host)-seq.ExtendLen())
	for n := seq.Samples() - 1; n >= 0; n-- {
		in.addSample(seq, seq.End-n, len(in.ids.host)-1-n)
	}
}

// addPages appends a row of the page table.
func (in *inputs) addPages(pages []core.Page) {
	at := len(in.table.host)
	in.table.host = slices.Grow(in.table.host, in.pages)[:at+in.pages]
	row := in.table.host[at:]
	for i, page := range pages {
		row[i] = int32(page)
	}
	clear(row[len(pages):])
}

// addSample asks for the token at a position of a request's sequence; row is the
// batch's row of the position before it. Of several tokens none becomes the slot's
// last one: which of them count, the host decides.
func (in *inputs) addSample(seq core.Seq, position, row int) {
	args := sampler.Args(seq.Req, position)
	if len(seq.Draft) > 0 {
		args.Slot = -1
	}
	in.logits.addSample(seq.Req, position, len(in.logitRows.host))
	in.masks.add(seq.Req, position, len(in.logitRows.host))
	in.logitRows.host = append(in.logitRows.host, int32(row))
	in.sampling.host = append(in.sampling.host, args)
}

// write transfers what fill described.
func (in *inputs) write(dev device.Device) error {
	for _, a := range []*array[int32]{&in.ids, &in.positions, &in.slots, &in.table, &in.cuQ, &in.kvLens, &in.logitRows} {
		if len(a.host) == 0 {
			continue
		}
		if err := dev.Write(a.tensor.Addr, ops.Bytes(a.host)); err != nil {
			return fmt.Errorf("engine: writing inputs: %w", err)
		}
	}
	if err := in.logits.write(dev); err != nil {
		return fmt.Errorf("engine: writing inputs: %w", err)
	}
	if len(in.sampling.host) == 0 {
		return nil
	}
	return dev.Write(in.sampling.tensor.Addr, ops.Bytes(in.sampling.host))
}

// view returns the batch's tensors as the model wants them. The logits wanted
// first are those of the prompts' tokens, if any are.
func (in *inputs) view(ropes []ops.Tensor, last ops.Tensor, pageSize int) model.Inputs {
	row := func(a array[int32]) ops.Tensor { return ops.New(a.tensor.Addr, 1, len(a.host), ops.I32) }
	rows := row(in.logitRows)
	if in.logits.blocks() > 0 {
		rows = in.logits.rowsOf(0)
	}
	return model.Inputs{
		IDs:       row(in.ids),
		Last:      last,
		LogitRows: rows,
		Rope:      ops.Rope{Positions: row(in.positions), Slots: row(in.slots), PageSize: pageSize},
		Paged: ops.Paged{
			Table:    ops.New(in.table.tensor.Addr, len(in.kvLens.host), in.pages, ops.I32),
			CuQLens:  row(in.cuQ),
			KVLens:   row(in.kvLens),
			PageSize: pageSize,
		},
		RopeTables: ropes,
	}
}
