// emu_impl.h: the fibers behind emu.h. One launch runs at a time in a process.
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <deque>

#include "emu.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
// For what is still on a fiber's stack when the fiber is given up.
#define EMU_NO_REDZONES __attribute__((no_sanitize_address, noinline))
#else
#define EMU_NO_REDZONES
#endif

#if !defined(__x86_64__)
#error "the emulation switches stacks in x86-64 assembly"
#endif

// Saves the registers that a call keeps and the stack pointer, and goes on where
// another stack was left: a swapcontext without its two system calls.
extern "C" void msgl_emu_switch(void **save, void *to);
asm(R"(
.text
.type msgl_emu_switch, @function
msgl_emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size msgl_emu_switch, .-msgl_emu_switch
.section .note.GNU-stack, "", @progbits
.text
)");

namespace emu {

Now now;

namespace {

enum { STACK_BYTES = 128 << 10 };
enum State { READY, AT_BARRIER, IN_EXCHANGE, ENDED };

struct Copy {
  void *to;
  const void *from;
  int bytes;
  bool there;
  unsigned group;
};

struct Fiber {
  void *sp;
  State state;
  Site site;
  unsigned groups;  // of copies, committed
  std::deque<Copy> copies;  // that have not arrived
};

// Values in the making: a lane cannot be two exchanges ahead of another, so two
// sets suffice.
struct Warp {
  Slot slots[2][WARP];
  unsigned count;  // exchanges that are complete
  int arrived;
  Site site;
};

Fiber fibers[MAX_THREADS];
Warp warps[MAX_THREADS / WARP];
unsigned char *stacks;
void *scheduler;
unsigned current, threads;
unsigned at_barrier;
Site barrier;  // where they wait
void (*body)(void *);
void *context;
char text[512];
bool failed;
bool broken;  // a launch has left fibers in the middle of their work
Order how = FORWARD;

#if defined(__SANITIZE_ADDRESS__)
void *scheduler_fake;
const void *scheduler_bottom;
size_t scheduler_size;
#endif

EMU_NO_REDZONES void suspend(bool ends) {
#if defined(__SANITIZE_ADDRESS__)
  void *fake = nullptr;
  __sanitizer_start_switch_fiber(ends ? nullptr : &fake, scheduler_bottom, scheduler_size);
#endif
  (void)ends;
  msgl_emu_switch(&fibers[current].sp, scheduler);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, &scheduler_bottom, &scheduler_size);
#endif
}

void resume(unsigned i) {
  current = i;
  now.thread = dim3(i, 0, 0);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&scheduler_fake, stacks + (size_t)i * STACK_BYTES, STACK_BYTES);
#endif
  msgl_emu_switch(&scheduler, fibers[i].sp);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(scheduler_fake, nullptr, nullptr);
#endif
}

void fail(const char *what, Site a, Site b) {
  if (!failed) {
    snprintf(text, sizeof text, "%s: %s at %s:%d, %s at %s:%d (block %u,%u, thread %u)", what, a.what, a.file, a.line, b.what,
             b.file, b.line, now.block.x, now.block.y, current);
  }
  failed = true;
  suspend(false);
}

bool same(Site a, Site b) { return a.line == b.line && strcmp(a.file, b.file) == 0 && strcmp(a.what, b.what) == 0; }

EMU_NO_REDZONES void thread_main() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_bottom, &scheduler_size);
#endif
  body(context);
  fibers[current].state = ENDED;
  fibers[current].site = {"the end", "the kernel", 0};
  suspend(true);
}

// A stack on which msgl_emu_switch finds six registers and thread_main's address.
void prepare(unsigned i) {
  void **top = (void **)(stacks + (size_t)(i + 1) * STACK_BYTES);
  top[-1] = nullptr;
  top[-2] = (void *)thread_main;
  for (int r = 3; r <= 8; r++) top[-r] = nullptr;
  fibers[i].sp = top - 8;
  fibers[i].state = READY;
  fibers[i].groups = 0;
  fibers[i].copies.clear();
}

// The n-th thread to run of a block.
unsigned nth(unsigned n) {
  switch (how) {
    case BACKWARD: return threads - 1 - n;
    case SHUFFLED: return (n * 97 + 31) % threads;  // 97 has no factor in common with a multiple of 32
    default: return n;
  }
}

bool run_block(size_t shared_bytes) {
  memset(now.shared, 0xff, shared_bytes);
  at_barrier = 0;
  for (unsigned i = 0; i < threads; i++) prepare(i);
  for (unsigned i = 0; i < threads / WARP; i++) warps[i].count = warps[i].arrived = 0;
  for (;;) {
    bool any = false, left = false;
    for (unsigned n = 0; n < threads; n++) {
      unsigned i = nth(n);
      if (fibers[i].state == READY) {
        any = true;
        resume(i);
        if (failed) return false;
      }
      left = left || fibers[i].state != ENDED;
    }
    if (!left) return true;
    if (any) continue;
    const Fiber *waits = nullptr, *other = nullptr;
    for (unsigned i = 0; i < threads; i++) {
      if (!waits && fibers[i].state != ENDED) waits = &fibers[i];
      if (waits && !same(fibers[i].site, waits->site)) other = &fibers[i];
    }
    if (!other) other = &fibers[0];
    snprintf(text, sizeof text, "threads wait for ever: %s at %s:%d, %s at %s:%d (block %u,%u)", waits->site.what, waits->site.file,
             waits->site.line, other->site.what, other->site.file, other->site.line, now.block.x, now.block.y);
    return false;
  }
}

}  // namespace

void sync_block(Site at) {
  Fiber *f = &fibers[current];
  if (at_barrier > 0 && !same(barrier, at)) fail("threads of a block wait at different barriers", barrier, at);
  barrier = f->site = at;
  if (++at_barrier < threads) {
    f->state = AT_BARRIER;
    suspend(false);
    return;
  }
  at_barrier = 0;
  for (unsigned i = 0; i < threads; i++) {
    if (fibers[i].state == AT_BARRIER) fibers[i].state = READY;
  }
}

const Slot *exchange(Site at, const void *mine, size_t bytes) {
  unsigned me = current, first = me / WARP * WARP;
  Warp *w = &warps[me / WARP];
  Slot *slots = w->slots[w->count % 2];
  if (w->arrived > 0 && !same(w->site, at)) fail("lanes of a warp diverge", w->site, at);
  w->site = fibers[me].site = at;
  memcpy(slots[me % WARP].bytes, mine, bytes);
  if (++w->arrived < WARP) {
    fibers[me].state = IN_EXCHANGE;
    suspend(false);
    return slots;
  }
  w->arrived = 0;
  w->count++;
  for (unsigned i = first; i < first + WARP; i++) {
    if (fibers[i].state == IN_EXCHANGE) fibers[i].state = READY;
  }
  return slots;
}

void copy_async(void *to, const void *from, int bytes, bool there) {
  Fiber *f = &fibers[current];
  f->copies.push_back({to, from, bytes, there, f->groups});
}

void commit_copies() { fibers[current].groups++; }

void wait_copies(int left) {
  Fiber *f = &fibers[current];
  while (!f->copies.empty() && f->copies.front().group + (unsigned)left < f->groups) {
    const Copy c = f->copies.front();
    f->copies.pop_front();
    if (c.there) {
      memcpy(c.to, c.from, (size_t)c.bytes);
    } else {
      memset(c.to, 0, (size_t)c.bytes);
    }
  }
}

bool run(dim3 grid, unsigned count, size_t shared_bytes, void (*fn)(void *), void *arguments) {
#if defined(__SANITIZE_ADDRESS__)
  if (broken) ASAN_UNPOISON_MEMORY_REGION(stacks, (size_t)MAX_THREADS * STACK_BYTES);
#endif
  failed = broken = false;
  if (count == 0 || count > MAX_THREADS || count % WARP) {
    snprintf(text, sizeof text, "a block of %u threads", count);
    return false;
  }
  if (!stacks) {
    void *p = mmap(nullptr, (size_t)MAX_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
      snprintf(text, sizeof text, "no memory for the stacks");
      return false;
    }
    stacks = (unsigned char *)p;
  }
  threads = count;
  body = fn;
  context = arguments;
  now.grid_dim = grid;
  now.block_dim = dim3(count);
  void *shared = nullptr;
  bool ok = posix_memalign(&shared, 64, shared_bytes > 0 ? shared_bytes : 1) == 0;
  now.shared = (unsigned char *)shared;
  for (unsigned z = 0; z < grid.z && ok; z++) {
    for (unsigned y = 0; y < grid.y && ok; y++) {
      for (unsigned x = 0; x < grid.x && ok; x++) {
        now.block = dim3(x, y, z);
        ok = run_block(shared_bytes);
      }
    }
  }
  free(shared);
  broken = !ok;
  return ok;
}

const char *message() { return text; }

void set_order(Order o) { how = o; }

Order order() { return how; }

}  // namespace emu
