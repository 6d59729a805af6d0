// pool.c: a persistent pool of threads.
//
// A phase is over when its items are done, whoever did them: the thread that
// finishes the last one prepares the next phase. A thread that comes late, or that
// the system has put aside, is not waited for unless it holds an item; so another
// busy process costs its share of the cores and not a time slice at every phase. So
// that the system does not put it aside with an item, a thread offers its core
// between phases, more often than the system takes it.
// A waiting thread spins for a bounded time and then sleeps: nothing spins while
// the pool is idle, and a machine with more threads than cores makes progress.
#define _GNU_SOURCE
#include "pool.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SPIN_NS = 50000, OFFER_NS = 1500000, SPINS_PER_LOOK = 64, MAX_THREADS = 1024 };

struct msgl_worker {
  msgl_pool *pool;
  int index;
};

int64_t msgl_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static uint32_t sleep_until_changed(msgl_pool *p, uint32_t turn) {
  uint32_t now;
  pthread_mutex_lock(&p->mutex);
  // Sequentially consistent, as is publish: either we see the new turn or the
  // publisher sees a sleeper.
  atomic_fetch_add(&p->sleepers, 1);
  while ((now = atomic_load(&p->turn)) == turn) pthread_cond_wait(&p->wake, &p->mutex);
  atomic_fetch_sub(&p->sleepers, 1);
  pthread_mutex_unlock(&p->mutex);
  return now;
}

// Waits until the turn is another one than `turn`, and returns it.
static uint32_t await(msgl_pool *p, uint32_t turn) {
  int64_t until = 0;
  for (int64_t spins = 0; p->spin_ns > 0; spins++) {
    uint32_t now = atomic_load_explicit(&p->turn, memory_order_acquire);
    if (now != turn) return now;
    relax();
    if (spins % SPINS_PER_LOOK != SPINS_PER_LOOK - 1) continue;
    int64_t t = msgl_now_ns();
    if (until == 0) until = t + p->spin_ns;
    if (t >= until) break;
  }
  return sleep_until_changed(p, turn);
}

static void publish(msgl_pool *p, uint32_t turn) {
  atomic_store(&p->turn, turn);
  if (atomic_load(&p->sleepers) > 0) {
    pthread_mutex_lock(&p->mutex);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mutex);
  }
}

// The turns after `turn`: even numbers are phases, odd ones mean nothing to do.
static uint32_t next_phase(uint32_t turn) { return (turn | 1) + 1; }
static uint32_t next_idle(uint32_t turn) { return turn | 1; }

// A claim is the turn that a range belongs to and the next item of it. A thread
// that was put aside in an earlier turn can't claim an item of this one.
static uint64_t claim(uint32_t turn, int64_t next) { return (uint64_t)turn << 32 | (uint64_t)next; }

// Runs items of a range until there are none, and returns their number.
static int64_t run_range(msgl_pool *p, msgl_range *r, int thread, uint32_t turn) {
  int64_t done = 0;
  uint64_t v = atomic_load_explicit(&r->next, memory_order_acquire);
  while (v >> 32 == turn) {
    int64_t from = (int64_t)(v & UINT32_MAX), end = atomic_load_explicit(&r->end, memory_order_acquire);
    int64_t to = msgl_min(from + atomic_load_explicit(&p->step, memory_order_relaxed), end);
    if (from >= end) break;
    if (!atomic_compare_exchange_weak_explicit(&r->next, &v, claim(turn, to), memory_order_acquire, memory_order_acquire)) continue;
    p->job.phases[p->phase - 1].run(&p->job, thread, from, to);
    done += to - from;
    v = claim(turn, to);
  }
  return done;
}

// Runs items of a phase, one's own first, and returns whether the phase is over
// by that.
static int run_phase(msgl_pool *p, int thread, uint32_t turn) {
  int64_t done = 0;
  for (int i = 0; i < p->threads; i++) done += run_range(p, &p->ranges[(thread + i) % p->threads], thread, turn);
  return done > 0 && atomic_fetch_sub(&p->left, done) == done;
}

// Lays out the ranges of a phase; the turn of that phase makes them claimable. A
// late thread of an earlier turn may hold a claim that failed only at the old end:
// its range must belong to the new turn before it gets the new end.
static void split(msgl_pool *p, const msgl_phase *ph, uint32_t turn) {
  atomic_store_explicit(&p->left, ph->items, memory_order_relaxed);
  atomic_store_explicit(&p->step, ph->step, memory_order_relaxed);
  for (int i = 0; i < p->threads; i++) {
    atomic_store_explicit(&p->ranges[i].next, claim(turn, UINT32_MAX), memory_order_relaxed);
    atomic_store_explicit(&p->ranges[i].end, ph->items * (i + 1) / p->threads, memory_order_release);
    atomic_store_explicit(&p->ranges[i].next, claim(turn, ph->items * i / p->threads), memory_order_release);
  }
}

// Adds the time since the last call to the current operation; of LINEAR and SAMPLE in one, the
// time of the last phase to SAMPLE.
static void note_time(msgl_pool *p) {
  int64_t now = msgl_now_ns();
  p->ns[p->index + (p->phase == p->job.nphases ? p->job.nops - 1 : 0)] += now - p->since;
  p->since = now;
}

// Moves to the next phase that needs all threads, running on the way what one
// thread does alone. Returns the turn that begins.
static uint32_t advance(msgl_pool *p, uint32_t turn) {
  for (;;) {
    while (p->phase < p->job.nphases) {
      if (p->ns && p->job.nops == 2 && p->phase == p->job.nphases - 1) note_time(p);
      const msgl_phase *ph = &p->job.phases[p->phase++];
      if (ph->items == 0) continue;
      if (ph->serial || p->threads == 1) {
        ph->run(&p->job, 0, 0, ph->items);
        continue;
      }
      split(p, ph, next_phase(turn));
      return next_phase(turn);
    }
    if (p->ns && p->index >= 0) note_time(p);
    p->phase = 0;
    p->job.nphases = 0;
    if (p->job.next_row == 0 && (p->index += p->job.nops) >= p->nops) return next_idle(turn);
    p->code = msgl_plan(&p->job, &p->ops[p->index], p->nops - p->index);
    if (p->code != MSGL_OK) return next_idle(turn);
  }
}

// Lets another process have the core if this thread has had it since `since`, for long. Returns
// since when it has had it now.
static int64_t offer_core(int64_t since) {
  if (msgl_now_ns() - since < OFFER_NS) return since;
  sched_yield();
  return msgl_now_ns();
}

// Runs phases until there is nothing to do.
static uint32_t work(msgl_pool *p, int thread, uint32_t turn) {
  int64_t since = msgl_now_ns();
  while (turn % 2 == 0 && !atomic_load(&p->quit)) {
    since = offer_core(since);
    if (run_phase(p, thread, turn)) {
      turn = advance(p, turn);
      publish(p, turn);
    } else {
      turn = await(p, turn);
    }
  }
  return turn;
}

void msgl_run(msgl_pool *p) {
  uint32_t idle = atomic_load(&p->turn), turn = advance(p, idle);
  if (turn == idle) return;  // all of it was for one thread
  publish(p, turn);
  work(p, 0, turn);
}

static void *worker_main(void *arg) {
  struct msgl_worker *w = arg;
  uint32_t turn = 1;  // the pool is made idle
  while (!atomic_load(&w->pool->quit)) {
    turn = work(w->pool, w->index, await(w->pool, turn));
  }
  return NULL;
}

static int cpus(void) {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static int64_t l2_bytes(void) {
  long bytes = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
  bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
  return bytes > 0 ? bytes : 512 << 10;
}

static int start_workers(msgl_pool *p) {
  for (int i = 1; i < p->threads; i++) {
    p->workers[i] = (struct msgl_worker){p, i};
    if (pthread_create(&p->ids[i], NULL, worker_main, &p->workers[i]) != 0) return MSGL_ERR_THREAD;
    p->started++;
  }
  return MSGL_OK;
}

int msgl_pool_new(msgl_pool **out, int threads) {
  *out = NULL;
  if (threads < 1 || threads > MAX_THREADS) return MSGL_ERR_SHAPE;
  const msgl_kernels *kernels;
  int code = msgl_choose_kernels(&kernels);
  if (code != MSGL_OK) return code;
  msgl_pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
  if (!p) return MSGL_ERR_MEMORY;
  memset(p, 0, sizeof *p);
  p->threads = threads;
  // With more threads than cores the awaited thread may need this very core.
  p->spin_ns = threads <= cpus() ? SPIN_NS : 0;
  p->job.kernels = kernels;
  p->job.threads = threads;
  p->job.l2_bytes = l2_bytes();
  pthread_mutex_init(&p->mutex, NULL);
  pthread_cond_init(&p->wake, NULL);
  atomic_store(&p->turn, 1);
  p->ids = calloc((size_t)threads, sizeof *p->ids);
  p->workers = calloc((size_t)threads, sizeof *p->workers);
  p->ranges = aligned_alloc(64, (size_t)threads * sizeof *p->ranges);
  code = p->ids && p->workers && p->ranges ? start_workers(p) : MSGL_ERR_MEMORY;
  if (code != MSGL_OK) {
    msgl_pool_free(p);
    return code;
  }
  *out = p;
  return MSGL_OK;
}

void msgl_pool_free(msgl_pool *p) {
  if (!p) return;
  atomic_store(&p->quit, 1);
  publish(p, next_phase(atomic_load(&p->turn)));
  for (int i = 1; i <= p->started; i++) pthread_join(p->ids[i], NULL);
  msgl_free(p->job.shared, p->job.shared_cap);
  msgl_free(p->job.own, p->job.own_cap);
  pthread_cond_destroy(&p->wake);
  pthread_mutex_destroy(&p->mutex);
  free(p->ranges);
  free(p->workers);
  free(p->ids);
  free(p);
}
