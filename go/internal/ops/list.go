package ops

import (
	"fmt"
	"strings"
)

// List is the recorded forward pass. The zero value is ready; Reset keeps the
// memory, so recording does not allocate in steady state. A shape that does not
// fit is a bug in the model's code and is reported by Err at the end of the
// recording, naming the operation.
type List struct {
	Ops []Op
	err error
}

// Reset empties the list.
func (l *List) Reset() {
	l.Ops = l.Ops[:0]
	l.err = nil
}

// Err returns the first shape error of the recording.
func (l *List) Err() error { return l.err }

func (l *List) add(op Op) { l.Ops = append(l.Ops, op) }

func (l *List) fail(k Kind, format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("ops: operation %d, %s: %s", len(l.Ops), k, fmt.Sprintf(format, args...))
	}
}

// Embed gathers rows of a table: dst[t] = scale · table[ids[t]]; a scale of 0
// stands for 1.
//
// dst is F32 [T, H], table [V, H] from Device.Load, ids I32 [1, T]. An id below
// zero names a token that the device itself sampled: -(s+1) stands for last[s],
// last being Sample's table, I32 [1, S]. So a batch can be recorded before the
// tokens of the batch before it are known to the host.
func (l *List) Embed(dst, table, ids, last Tensor, scale float32) {
	if ok := dst.DType == F32 && dst.Cols == table.Cols && ids.DType == I32 && ids.Cols == dst.Rows; !ok {
		l.fail(KindEmbed, "dst %v, table %v, ids %v", dst, table, ids)
	}
	l.add(Op{Kind: KindEmbed, T: [8]Tensor{dst, table, ids, last}, F: [4]float32{scale}})
}

// RMSNorm normalises rows: dst = x / sqrt(mean(x²) + eps) * w (Zhang and
// Sennrich, 2019). With a residual, it first adds: residual += x, and normalises
// the residual.
//
// dst, x and residual are F32 [M, H], w is F32 [1, H]; dst may be x.
func (l *List) RMSNorm(dst, x, w, residual Tensor, eps float32) {
	if ok := dst.Rows == x.Rows && dst.Cols == x.Cols && w.Cols == x.Cols && w.DType == F32; !ok {
		l.fail(KindRMSNorm, "dst %v, x %v, w %v", dst, x, w)
	}
	if ok := !residual.Valid() || residual.Rows == x.Rows && residual.Cols == x.Cols; !ok {
		l.fail(KindRMSNorm, "residual %v, x %v", residual, x)
	}
	l.add(Op{Kind: KindRMSNorm, T: [8]Tensor{dst, x, w, residual}, F: [4]float32{eps}})
}

// Linear multiplies by a weight: dst = x · wᵀ + bias.
//
// dst is F32 [M, N], x F32 [M, K], w [N, K] from Device.Load, bias F32 [1, N] or
// absent. Every element is one chain of fused multiply-adds over k = 0, 1, …,
// K-1, whatever M is: a row's result does not depend on the rows beside it.
func (l *List) Linear(dst, x, w, bias Tensor) {
	if ok := dst.Rows == x.Rows && dst.Cols == w.Rows && x.Cols == w.Cols; !ok {
		l.fail(KindLinear, "dst %v, x %v, w %v", dst, x, w)
	}
	if ok := !bias.Valid() || bias.Cols == dst.Cols && bias.DType == F32; !ok {
		l.fail(KindLinear, "bias %v, dst %v", bias, dst)
	}
	l.add(Op{Kind: KindLinear, T: [8]Tensor{dst, x, w, bias}})
}

// Heads describes the attention heads of a layer.
type Heads struct {
	Q, KV int // query heads and key/value heads; Q is a multiple of KV
	Dim   int // elements per head
}

// Rope holds the operands of RopeStore that are equal for all layers.
type Rope struct {
	Positions Tensor // I32 [1, M]: each row's position in its sequence
	Slots     Tensor // I32 [1, M]: where its key and value go: page*pageSize + offset
	Table     Tensor // F32 [positions, D]: cos of the D/2 angles, then sin of them
	PageSize  int
}

// RopeStore prepares attention for the rows of qkv, F32 [M, (Q+2·KV)·D], which
// holds each row's query heads, key heads and value heads: queries and keys are
// normalised per head (with qNorm and kNorm, F32 [1, D]; absent: not), rotated in
// the half-split form (element i with i + D/2, as Hugging Face's rotate_half),
// queries in place; keys and values are stored into the caches at Slots.
//
// kCache and vCache are [pages·pageSize, KV·D] in a layout of the device's own.
func (l *List) RopeStore(qkv Tensor, r Rope, kCache, vCache, qNorm, kNorm Tensor, h Heads, eps float32) {
	if ok := int(qkv.Cols) == (h.Q+2*h.KV)*h.Dim; !ok {
		l.fail(KindRopeStore, "qkv %v, heads %+v", qkv, h)
	}
	if ok := r.Positions.Cols == qkv.Rows && r.Slots.Cols == qkv.Rows; !ok {
		l.fail(KindRopeStore, "qkv %v, positions %v, slots %v", qkv, r.Positions, r.Slots)
	}
	if ok := int(r.Table.Cols) == h.Dim && int(kCache.Cols) == CacheCols(kCache.DType, h.KV, h.Dim) && kCache.Cols == vCache.Cols; !ok {
		l.fail(KindRopeStore, "table %v, cache %v, heads %+v", r.Table, kCache, h)
	}
	l.add(Op{
		Kind: KindRopeStore,
		T:    [8]Tensor{qkv, r.Positions, r.Slots, r.Table, kCache, vCache, qNorm, kNorm},
		F:    [4]float32{eps},
		I:    [8]int32{int32(h.Q), int32(h.KV), int32(h.Dim), int32(r.PageSize)},
	})
}

// Paged describes the requests of a batch to Attention.
type Paged struct {
	Table    Tensor // I32 [R, pages]: row r lists the pages of request r, in order of position
	CuQLens  Tensor // I32 [1, R+1]: rows CuQLens[r] … CuQLens[r+1]-1 of the batch belong to request r
	KVLens   Tensor // I32 [1, R]: positions of request r in the cache, this batch's included
	PageSize int
}

// Attention is causal softmax attention over the paged cache:
// dst[t] = softmax(scale · q[t] · Kᵀ) · V over the positions 0 … p of the row's
// request, p being its own position KVLens[r] - (rows left in the request).
//
// dst is F32 [M, Q·D], q a view [M, Q·D] of the rows that RopeStore prepared; dst may be q. The
// softmax is computed online over blocks of positions at fixed multiples of the
// block's size, so a row's result does not depend on chunking or batching.
// window > 0 restricts a row to its last window positions.
func (l *List) Attention(dst, q Tensor, p Paged, kCache, vCache Tensor, h Heads, scale float32, window int) {
	if ok := dst.Rows == q.Rows && dst.Cols == q.Cols && int(q.Cols) == h.Q*h.Dim; !ok {
		l.fail(KindAttention, "dst %v, q %v, heads %+v", dst, q, h)
	}
	if ok := p.CuQLens.Cols == p.Table.Rows+1 && p.KVLens.Cols == p.Table.Rows; !ok {
		l.fail(KindAttention, "table %v, cu_q_lens %v, kv_lens %v", p.Table, p.CuQLens, p.KVLens)
	}
	if ok := h.KV > 0 && h.Q%h.KV == 0 && int(kCache.Cols) == CacheCols(kCache.DType, h.KV, h.Dim); !ok {
		l.fail(KindAttention, "heads %+v, cache %v", h, kCache)
	}
	l.add(Op{
		Kind: KindAttention,
		T:    [8]Tensor{dst, q, kCache, vCache, p.Table, p.CuQLens, p.KVLens},
		F:    [4]float32{scale},
		I:    [8]int32{int32(h.Q), int32(h.KV), int32(h.Dim), int32(p.PageSize), int32(window)},
	})
}

// ActMul is the gate of a feed-forward layer:
// dst = activation(gateUp[:, :F]) * gateUp[:, F:]. dst is F32 [M, F], gateUp F32
// [M, 2F].
func (l *List) ActMul(dst, gateUp Tensor, a Activation) {
	if ok := dst.Rows == gateUp.Rows && 2*dst.Cols == gateUp.Cols; !ok {
		l.fail(KindActMul, "dst %v, gate_up %v", dst, gateUp)
	}
	if ok := a == SiLU || a == GELUTanh; !ok {
		l.fail(KindActMul, "activation %d", a)
	}
	l.add(Op{Kind: KindActMul, T: [8]Tensor{dst, gateUp}, I: [8]int32{int32(a)}})
}

// AllGather puts together what the ranks of a tensor-parallel group computed of
// one tensor: dst, F32 [M, N] on every rank, gets the columns of each rank's x,
// F32 [M, n], in order of rank. Where x is dst, on a single device, nothing is
// recorded. GPUs run it, among themselves; between other devices the engine does.
func (l *List) AllGather(dst, x Tensor) {
	if dst.Addr == x.Addr {
		return
	}
	if ok := dst.Rows == x.Rows && dst.Cols >= x.Cols; !ok {
		l.fail(KindAllGather, "dst %v, x %v", dst, x)
	}
	l.add(Op{Kind: KindAllGather, T: [8]Tensor{dst, x}})
}

// GatherRows copies rows: dst[r] = x[rows[r]]. dst is F32 [R, H], rows I32 [1, R].
func (l *List) GatherRows(dst, x, rows Tensor) {
	if ok := dst.Cols == x.Cols && rows.Cols == dst.Rows; !ok {
		l.fail(KindGatherRows, "dst %v, x %v, rows %v", dst, x, rows)
	}
	l.add(Op{Kind: KindGatherRows, T: [8]Tensor{dst, x, rows}})
}

// String prints one operation a line: its kind, the shapes of its operands, its
// numbers. Addresses are left out, so the text is equal from run to run.
func (l *List) String() string {
	var b strings.Builder
	for _, op := range l.Ops {
		b.WriteString(op.String())
		b.WriteByte('\n')
	}
	return b.String()
}

func (o Op) String() string {
	var b strings.Builder
	b.WriteString(o.Kind.String())
	n := len(o.T)
	for n > 0 && !o.T[n-1].Valid() {
		n--
	}
	for _, t := range o.T[:n] {
		b.WriteByte(' ')
		b.WriteString(t.String())
	}
	for _, f := range o.F {
		if f != 0 {
			fmt.Fprintf(&b, " %.7g", f)
		}
	}
	for _, i := range o.I {
		if i != 0 {
			fmt.Fprintf(&b, " %d", i)
		}
	}
	return b.String()
}
