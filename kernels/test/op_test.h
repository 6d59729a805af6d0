// op_test.h: what the tests of the operations share, and the tests, by kind of operation.
#ifndef OP_TEST_H
#define OP_TEST_H

#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

float rnd(void);       // uniform in [-1, 1)
float *floats(int n);  // random ones
float *nans(int n);
msgl_tensor view(void *p, int rows, int cols, int stride, int dtype);
msgl_tensor f32(float *p, int rows, int cols);
msgl_tensor i32(int32_t *p, int n);

// Counts a failure and says what failed, and for which numbers.
void check(int ok, const char *what, int a, int b, int c);
int near(double got, double want, double tolerance);
int run(msgl_pool *pool, msgl_op *ops, int n);

// x, rounded to the type.
float rounded(float x, int dtype);
// A value of x as it meets a weight.
float meeting(float x, int dtype);
// w [n, k] as a packed weight, to be freed.
void *pack(const float *w, int n, int k, int dtype);

// op_linear.c
void test_to_f16(void);
void test_pack_bf16(int n, int k);
void test_quant(msgl_pool *pool, int m, int n, int k, int dtype);
void test_linear(msgl_pool *pool, int m, int n, int k, int dtype);
void test_greedy(msgl_pool *pool, int m, int n, int k, int dtype);

// op_moe.c
void test_moe(msgl_pool *pool, int m, int e, int k, int h, int f, int dtype);

// op_attention.c: one request of `len` positions in one batch, then its last row alone
void test_attention(msgl_pool *pool, int q, int kv, int d, int page, int len, int window, int dtype);

// op_rows.c
void test_rows(msgl_pool *pool, int m, int h);
void test_exp(msgl_pool *pool);
void test_mask(msgl_pool *pool, int rows, int vocab);
void test_logits(msgl_pool *pool, int rows, int vocab);
void test_sample(msgl_pool *pool, int rows, int vocab);

#endif
