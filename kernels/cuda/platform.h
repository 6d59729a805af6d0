// platform.h: the kernels' ground: a GPU, or emu/.
#ifndef MSGL_PLATFORM_H
#define MSGL_PLATFORM_H

#include "msgl_cuda.h"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#else
#include "emu/emu.h"
#endif

namespace msgl {

enum { WARP = 32 };

// The status word, and the operation that the kernel is part of.
struct Guard {
  int32_t *status;
  int op;
};

// What an operation needs to be launched.
struct Run {
  msgl_cuda_run *args;
  Guard guard;
  size_t taken;  // of the scratch
  bool dry;      // only counts scratch
};

// Scratch of the operation, aligned for any type. In a dry run it must not be touched.
template <class T> T *take(Run &run, int64_t count) {
  size_t at = run.taken;
  run.taken += ((size_t)count * sizeof(T) + 255) / 256 * 256;
  return (T *)(uintptr_t)(run.args->scratch + at);
}

// Whether an operation before this one failed. All threads get the same answer,
// also while a block of this operation finds a fault.
__device__ inline bool stopped(Guard g) {
  int32_t word = *(volatile int32_t *)g.status;
  return word != 0 && (word >> 8) != g.op + 1;
}

__device__ inline void fail(Guard g, int code) { atomicCAS(g.status, 0, (g.op + 1) << 8 | code); }

#if defined(__CUDACC__)

template <class T> __device__ T *shared_memory() {
  extern __shared__ uint4 msgl_shared[];
  return reinterpret_cast<T *>(msgl_shared);
}

template <class... P, class... A>
int launch(const Run &run, void (*kernel)(P...), dim3 grid, int threads, size_t shared_bytes, A... args) {
  if (run.dry || grid.x == 0 || grid.y == 0 || grid.z == 0) return MSGL_OK;
  if (shared_bytes > (48 << 10) &&  // has to be asked for
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes) != cudaSuccess) {
    return MSGL_ERR_DEVICE;
  }
  kernel<<<grid, threads, shared_bytes, (cudaStream_t)run.args->stream>>>(args...);
  return cudaPeekAtLastError() == cudaSuccess ? MSGL_OK : MSGL_ERR_DEVICE;
}

inline int clear(const Run &run, void *p, size_t bytes) {
  if (run.dry) return MSGL_OK;
  return cudaMemsetAsync(p, 0, bytes, (cudaStream_t)run.args->stream) == cudaSuccess ? MSGL_OK : MSGL_ERR_DEVICE;
}

inline int device_attribute(cudaDeviceAttr which, int otherwise) {
  int device = 0, value = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return otherwise;
  return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? value : otherwise;
}

// Multiprocessors of the device.
inline int multiprocessors() { return device_attribute(cudaDevAttrMultiProcessorCount, 1); }

// The most shared memory that a block can have.
inline int64_t most_shared() { return device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, 48 << 10); }

// Copies 4 or 16 bytes to shared memory while the thread goes on; zeros if !there. The
// copies before a commit_copies are a group; wait_copies waits for all but the last LEFT.
template <int BYTES> __device__ void copy_async(void *to, const void *from, bool there) {
  unsigned at = (unsigned)__cvta_generic_to_shared(to);
  int bytes = there ? BYTES : 0;
  if (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(BYTES), "r"(bytes) : "memory");
  }
}

__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> __device__ void wait_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

#else

template <class T> T *shared_memory() { return reinterpret_cast<T *>(emu::now.shared); }

template <class... P, class... A>
int launch(const Run &run, void (*kernel)(P...), dim3 grid, int threads, size_t shared_bytes, A... args) {
  if (run.dry || grid.x == 0 || grid.y == 0 || grid.z == 0) return MSGL_OK;
  auto call = [&] { kernel(args...); };
  bool ok = emu::run(grid, (unsigned)threads, shared_bytes, [](void *c) { (*(decltype(call) *)c)(); }, &call);
  return ok ? MSGL_OK : MSGL_ERR_DEVICE;
}

inline int clear(const Run &run, void *p, size_t bytes) {
  if (!run.dry) memset(p, 0, bytes);
  return MSGL_OK;
}

inline int multiprocessors() { return 3; }

// What small GPUs have, or, in other orders of threads, large ones: that must not show, either.
inline int64_t most_shared() { return (emu::order() == emu::FORWARD ? 99 : 227) << 10; }

template <int BYTES> void copy_async(void *to, const void *from, bool there) { emu::copy_async(to, from, BYTES, there); }
inline void commit_copies() { emu::commit_copies(); }
template <int LEFT> void wait_copies() { emu::wait_copies(LEFT); }

#endif

}  // namespace msgl

#endif
