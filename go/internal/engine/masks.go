package engine

import (
	"slices"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/ops"
)

// masks are the tokens that the grammars of a batch's requests allow. Which they
// are follows from the tokens before, so they are computed after the forward
// pass was submitted, while it runs.
type masks struct {
	vocab   int
	pending bool // the sampling waits for them
	wanted  []wanted
	rows    array[int32] // of the logits, one for each request
	bits    array[int32] // MaskWords for each
	failed  []Failure
}

// wanted is the mask of a request's token at a position of its sequence.
type wanted struct {
	req      *core.Req
	position int
}

// Failure is a request whose grammar could not go on.
type Failure struct {
	UID core.UID
	Err error
}

func (m *masks) reset() {
	m.wanted, m.rows.host, m.failed, m.pending = m.wanted[:0], m.rows.host[:0], m.failed[:0], false
}

func (m *masks) any() bool { return len(m.wanted) > 0 }

// add asks for the mask of a request's token at a position, whose logits are in row.
func (m *masks) add(r *core.Req, position, row int) {
	if r.Matcher != nil {
		m.wanted, m.rows.host, m.pending = append(m.wanted, wanted{r, position}), append(m.rows.host, int32(row)), true
	}
}

// compute fills the bits on the host. The request's tokens must all be known.
func (m *masks) compute() {
	words := ops.MaskWords(m.vocab)
	n := words * len(m.wanted)
	m.bits.host = slices.Grow(m.bits.host[:0], n)[:n]
	for i, w := range m.wanted {
		if err := w.fill(m.bits.host[i*words : (i+1)*words]); err != nil {
			m.failed = append(m.failed, Failure{w.req.UID, err})
		}
	}
}

// fill writes the mask. A token that has become known since the batch was planned,
// because the grammar forced it, is the only one that it allows.
func (w wanted) fill(bits []int32) error {
	r := w.req
	if w.position < len(r.IDs) {
		clear(bits)
		token := r.IDs[w.position]
		bits[token/32] |= int32(uint32(1) << (token % 32))
		return nil
	}
	return r.Matcher.Mask(bits, r.IDs[r.PromptLen:])
}

// write transfers the bits, which one rank has computed for all.
func (m *masks) write(dev device.Device, bits []int32) error {
	if err := m.rows.put(dev, 1); err != nil {
		return err
	}
	if err := m.bits.reserve(dev, len(m.wanted), ops.MaskWords(m.vocab)); err != nil {
		return err
	}
	return dev.Write(m.bits.tensor.Addr, ops.Bytes(bits))
}

// record takes the other tokens from the logits.
func (m *masks) record(l *ops.List, logits ops.Tensor) {
	if n := len(m.wanted); n > 0 {
		rows := ops.New(m.rows.tensor.Addr, 1, n, ops.I32)
		l.Mask(logits, rows, m.bits.tensor.Head(n), m.vocab)
	}
}
