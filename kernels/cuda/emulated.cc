//go:build !cuda && amd64

// emulated.cc: the CUDA kernels, compiled for the CPU. One translation unit, so that
// what Go builds is what the .cu files say. Multiply-adds are those that the source
// asks for.
#pragma GCC target("avx2,fma")
#pragma GCC optimize("fp-contract=off")

#include "emu/emu_impl.h"
#include "emu/emulated.h"

#include "attention.cu"
#include "attention_fi.cu"
#include "gather.cu"
#include "graph.cu"
#include "linear.cu"
#include "linear_quant.cu"
#include "linear_tensor.cu"
#include "logits.cu"
#include "moe.cu"
#include "rope.cu"
#include "rows.cu"
#include "sample.cu"
#include "submit.cu"

#include "emu/flashinfer.h"

void msgl_emu_set_order(int order) { emu::set_order((emu::Order)order); }

int msgl_emu_attend(const msgl_fi_task *task) { return emu::attend(task); }

int msgl_emu_supported(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
