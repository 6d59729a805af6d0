// emu.h: enough of CUDA's device language to run the kernels on a CPU.
//
// Blocks run one after the other; each thread of a block is a fiber with a stack
// of its own, which runs until it has to wait for others (__syncthreads, a shuffle)
// or ends. What a GPU would leave undefined is an error that names the place:
// threads of a block that wait at different barriers, lanes of a warp that exchange
// at different places, a thread that ends while others wait. Shared memory is poisoned
// before each block (floats are NaN, integers -1) and is an allocation of its own
// size, so that the address sanitizer sees what lies outside. Running threads in
// another order (set_order) shows a barrier that is missing. What copy_async copies
// arrives when its thread waits for it, and not before.
#ifndef MSGL_EMU_H
#define MSGL_EMU_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace emu {

enum { WARP = 32, MAX_THREADS = 1024 };

// Where a thread waits.
struct Site {
  const char *what, *file;
  int line;
};

// What the running thread sees of its launch.
struct Now {
  dim3 thread, block, block_dim, grid_dim;
  unsigned char *shared;
};
extern Now now;

struct Slot {
  unsigned char bytes[48];
};

// Waits for all threads of the block.
void sync_block(Site at);

// Waits for all lanes of the warp; returns what each of them gave, valid until
// the lane's next exchange.
const Slot *exchange(Site at, const void *mine, size_t bytes);

// Copies to shared memory as cp.async does: zeros instead of `from` if !there. What
// was copied before a commit_copies is a group; wait_copies waits for all groups but
// the thread's last `left`.
void copy_async(void *to, const void *from, int bytes, bool there);
void commit_copies();
void wait_copies(int left);

// Runs body(context) for all threads of all blocks. Returns false if a block did
// what a GPU leaves undefined; message() tells what.
bool run(dim3 grid, unsigned threads, size_t shared_bytes, void (*body)(void *), void *context);
const char *message();

enum Order { FORWARD, BACKWARD, SHUFFLED };
void set_order(Order order);
Order order();

template <class T> T lane_value(const Slot *slots, int lane) {
  T v;
  memcpy(&v, slots[lane].bytes, sizeof v);
  return v;
}

inline int lane() { return (int)(now.thread.x % WARP); }

}  // namespace emu

#define threadIdx (::emu::now.thread)
#define blockIdx (::emu::now.block)
#define blockDim (::emu::now.block_dim)
#define gridDim (::emu::now.grid_dim)

#define EMU_SITE(what) (::emu::Site{what, file, line})
#define EMU_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(EMU_HERE) { emu::sync_block(EMU_SITE("__syncthreads")); }

inline void __syncwarp(EMU_HERE) { emu::exchange(EMU_SITE("__syncwarp"), "", 0); }

// The kernels use whole warps only: mask is always 0xffffffff.
template <class T> T __shfl_xor_sync(unsigned, T v, int mask, EMU_HERE) {
  return emu::lane_value<T>(emu::exchange(EMU_SITE("__shfl_xor_sync"), &v, sizeof v), emu::lane() ^ mask);
}

template <class T> T __shfl_sync(unsigned, T v, int from, EMU_HERE) {
  return emu::lane_value<T>(emu::exchange(EMU_SITE("__shfl_sync"), &v, sizeof v), from % emu::WARP);
}

template <class T> T __shfl_up_sync(unsigned, T v, int delta, EMU_HERE) {
  const emu::Slot *all = emu::exchange(EMU_SITE("__shfl_up_sync"), &v, sizeof v);
  int from = emu::lane() - delta;
  return from < 0 ? v : emu::lane_value<T>(all, from);
}

inline unsigned __ballot_sync(unsigned, int predicate, EMU_HERE) {
  const emu::Slot *all = emu::exchange(EMU_SITE("__ballot_sync"), &predicate, sizeof predicate);
  unsigned bits = 0;
  for (int i = 0; i < emu::WARP; i++) bits |= (unsigned)(emu::lane_value<int>(all, i) != 0) << i;
  return bits;
}

// One thread runs at a time, so that plain arithmetic is atomic.
template <class T> T atomicAdd(T *p, T v) {
  T old = *p;
  *p = old + v;
  return old;
}

template <class T> T atomicMin(T *p, T v) {
  T old = *p;
  *p = v < old ? v : old;
  return old;
}

template <class T> T atomicCAS(T *p, T compare, T v) {
  T old = *p;
  if (old == compare) *p = v;
  return old;
}

inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8) c += (int)(int8_t)(a >> i) * (int)(int8_t)(b >> i);
  return c;
}

inline uint32_t __umulhi(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }

inline float __uint_as_float(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

inline uint32_t __float_as_uint(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

inline int __float_as_int(float f) { return (int)__float_as_uint(f); }
inline float __int_as_float(int i) { return __uint_as_float((uint32_t)i); }

#endif
