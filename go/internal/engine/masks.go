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
	reqs    []*core.Req
	rows    array[int32] // of the logits, one for each request
	bits    array[int32] // MaskWords for each
	failed  []Failure
}

// Failure is a request whose grammar could not go on.
type Failure struct {
	UID core.UID
	Err error
}

func (m *masks) reset() {
	m.reqs, m.rows.host, m.failed, m.pending = m.reqs[:0], m.rows.host[:0], m.failed[:0], false
}

func (m *masks) any() bool { return len(m.reqs) > 0 }

// add asks for the mask of a request's next token, whose logits are in row.
func (m *masks) add(r *core.Req, row int) {
	if r.Matcher != nil {
		m.reqs, m.rows.host, m.pending = append(m.reqs, r), append(m.rows.host, int32(row)), true
	}
}

// compute fills the bits on the host. The request's tokens must all be known.
func (m *masks) compute() {
	words := ops.MaskWords(m.vocab)
	m.bits.host = slices.Grow(m.bits.host[:0], words*len(m.reqs))[:words*len(m.reqs)]
	for i, r := range m.reqs {
		if err := r.Matcher.Mask(m.bits.host[i*words:(i+1)*words], r.IDs[r.PromptLen:]); err != nil {
			m.failed = append(m.failed, Failure{r.UID, err})
		}
	}
}

// write transfers the bits, which one rank has computed for all.
func (m *masks) write(dev device.Device, bits []int32) error {
	if err := m.rows.put(dev, 1); err != nil {
		return err
	}
	if err := m.bits.reserve(dev, len(m.reqs), ops.MaskWords(m.vocab)); err != nil {
		return err
	}
	return dev.Write(m.bits.tensor.Addr, ops.Bytes(bits))
}

// record takes the other tokens from the logits.
func (m *masks) record(l *ops.List, logits ops.Tensor) {
	if n := len(m.reqs); n > 0 {
		rows := ops.New(m.rows.tensor.Addr, 1, n, ops.I32)
		l.Mask(logits, rows, m.bits.tensor.Head(n), m.vocab)
	}
}
