// emu_test.cc: what the emulation of CUDA must see. The kernels here are wrong on purpose.
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <initializer_list>

#include "emu/emu_impl.h"

static int failures;

#define CHECK(condition)                                            \
  do {                                                              \
    if (!(condition)) {                                             \
      printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      failures++;                                                   \
    }                                                               \
  } while (0)

template <class F> static bool start(dim3 grid, unsigned threads, size_t shared, F kernel) {
  return emu::run(grid, threads, shared, [](void *f) { (*(F *)f)(); }, &kernel);
}

template <class F> static bool start(unsigned threads, size_t shared, F kernel) { return start(dim3(1), threads, shared, kernel); }

static int *shared_ints() { return (int *)emu::now.shared; }

static bool says(const char *part) {
  bool found = strstr(emu::message(), part) != nullptr;
  if (!found) printf("message: %s\n", emu::message());
  return found;
}

static void test_indices() {
  int sum = 0, blocks[3][2] = {};
  CHECK(start(dim3(3, 2), 64, 0, [&] {
    blocks[blockIdx.x][blockIdx.y]++;
    if (blockDim.x == 64 && gridDim.x == 3 && gridDim.y == 2) sum += (int)threadIdx.x;
  }));
  CHECK(sum == 6 * 63 * 32);
  CHECK(blocks[0][0] == 64 && blocks[2][1] == 64);
}

static void test_exchanges() {
  int bad = 0;
  CHECK(start(64, 0, [&] {
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    bad += __shfl_xor_sync(~0u, (int)threadIdx.x, 5) != (warp * 32 + (lane ^ 5));
    bad += __shfl_sync(~0u, 1.5 * lane, 7) != 10.5;
    bad += __shfl_up_sync(~0u, lane, 3) != (lane < 3 ? lane : lane - 3);
    bad += __ballot_sync(~0u, lane % 2) != 0xaaaaaaaau;
  }));
  CHECK(bad == 0);
}

static void test_barrier() {
  for (auto order : {emu::FORWARD, emu::BACKWARD, emu::SHUFFLED}) {
    emu::set_order(order);
    int bad = 0;
    CHECK(start(128, 128 * sizeof(int), [&] {
      for (int round = 0; round < 3; round++) {
        shared_ints()[threadIdx.x] = round;
        __syncthreads();
        for (int i = 0; i < 128; i++) bad += shared_ints()[i] != round;
        __syncthreads();
      }
    }));
    CHECK(bad == 0);
  }
  emu::set_order(emu::FORWARD);
}

// A result of threads that do not wait for each other depends on the order.
static void test_missing_barrier() {
  int seen[2];
  for (auto order : {emu::FORWARD, emu::BACKWARD}) {
    emu::set_order(order);
    CHECK(start(64, 64 * sizeof(int), [&] {
      shared_ints()[threadIdx.x] = 1;
      if (threadIdx.x == 63) seen[order] = shared_ints()[0];
    }));
  }
  emu::set_order(emu::FORWARD);
  CHECK(seen[emu::FORWARD] == 1 && seen[emu::BACKWARD] == -1);
}

static void test_uninitialised() {
  float value = 0;
  CHECK(start(32, 64, [&] { shared_ints()[0] = 0; }));
  CHECK(start(32, 64, [&] { value = ((float *)emu::now.shared)[0]; }));
  CHECK(value != value);
}

// A copy arrives when its thread waits for its group, in order of the groups.
static void test_copies() {
  static const int from[3] = {5, 6, 7};
  int bad = 0;
  CHECK(start(32, 4 * sizeof(int), [&] {
    int *to = shared_ints();
    if (threadIdx.x) return;
    for (int i = 0; i < 3; i++) {
      emu::copy_async(to + i, from + i, sizeof(int), i != 1);
      emu::commit_copies();
    }
    bad += to[0] != -1;
    emu::wait_copies(1);
    bad += to[0] != 5 || to[1] != 0 || to[2] != -1;
    emu::copy_async(to + 3, from, sizeof(int), true);  // of no group yet
    emu::wait_copies(0);
    bad += to[2] != 7 || to[3] != -1;
  }));
  CHECK(bad == 0);
}

static void test_divergence() {
  auto two_barriers = [] {  // in a macro all would be one line
    if (threadIdx.x < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  };
  CHECK(!start(64, 0, two_barriers));
  CHECK(says("different barriers"));
  CHECK(!start(64, 0, [] {
    if (threadIdx.x > 3) __syncthreads();
  }));
  CHECK(says("wait for ever"));
  CHECK(!start(32, 0, [] {
    if (threadIdx.x < 16) {
      __shfl_xor_sync(~0u, 1, 1);
    } else {
      __ballot_sync(~0u, 1);
    }
  }));
  CHECK(says("lanes of a warp diverge"));
  CHECK(!start(32, 0, [] {
    if (threadIdx.x != 9) __syncwarp();
  }));
  CHECK(says("wait for ever"));
  CHECK(start(32, 0, [] { __syncthreads(); }));  // works again
  CHECK(!start(33, 0, [] {}));
}

#if defined(__SANITIZE_ADDRESS__)
// Whether a process of its own dies of f.
template <class F> static bool dies(F f) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    fclose(stderr);
    f();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status != 0;
}

static void test_bounds() {
  for (int at : {16, -1}) {
    CHECK(dies([&] { start(32, 16 * sizeof(int), [&] { shared_ints()[at] = 1; }); }));
  }
  CHECK(!dies([&] { start(32, 16 * sizeof(int), [&] { shared_ints()[15] = 1; }); }));
}
#else
static void test_bounds() { printf("emu_test: bounds are seen by the address sanitizer only: make asan\n"); }
#endif

int main() {
  test_indices();
  test_exchanges();
  test_barrier();
  test_missing_barrier();
  test_uninitialised();
  test_copies();
  test_divergence();
  test_bounds();
  printf(failures ? "emu_test: %d checks failed\n" : "emu_test: ok\n", failures);
  return failures > 0;
}
