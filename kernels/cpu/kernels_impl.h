// kernels_impl.h: all kernels of one instruction set. Included by the
// kernels_*.c files, which set the target and the name.
#include "vec.h"

#include "linear_impl.h"
#include "elementwise_impl.h"
#include "attention_impl.h"
#include "sample_impl.h"
#include "logits_impl.h"
#include "moe_impl.h"
#include "probe_impl.h"

#define KERNELS_(isa) msgl_kernels_##isa
#define KERNELS(isa) KERNELS_(isa)
#define NAME_(isa) #isa
#define NAME(isa) NAME_(isa)

const msgl_kernels KERNELS(MSGL_ISA) = {
    .name = NAME(MSGL_ISA),
    .linear_rows = LINEAR_ROWS,
    .quant_rows = {QUANT8_ROWS, QUANT4_ROWS},
    .x_bytes = x_bytes,
    .embed = embed,
    .rms_norm = rms_norm,
    .linear_pack = linear_pack,
    .linear_stream = linear_stream,
    .linear_blocked = linear_blocked,
    .linear_best = linear_best,
    .rope_store = rope_store,
    .attention = attention,
    .attention_merge = attention_merge,
    .act_mul = act_mul,
    .gather_rows = gather_rows,
    .sample = sample,
    .adjust = adjust,
    .mask = mask,
    .logprobs = logprobs,
    .moe_route = moe_route,
    .moe_pack = moe_pack,
    .moe_gate_up = moe_gate_up,
    .moe_act = moe_act,
    .moe_down = moe_down,
    .moe_combine = moe_combine,
    .probe_read = probe_read,
    .probe_fma = probe_fma,
    .probe_flops = (int64_t)PROBE_FMAS * 12 * 2 * VW,
};
