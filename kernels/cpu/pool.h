// pool.h: what submit.c needs of the pool of threads.
#ifndef MSGL_POOL_H
#define MSGL_POOL_H

#include <pthread.h>
#include <stdatomic.h>

#include "internal.h"

// Items that a thread is to run first; the others help when they have run out of
// their own. next: the turn that the range belongs to (upper half) and the next
// item (lower half).
typedef struct {
  _Alignas(64) _Atomic uint64_t next;
  _Atomic int64_t end;
} msgl_range;

struct msgl_pool {
  int threads, started;
  int64_t spin_ns;    // how long a waiting thread spins before it sleeps
  pthread_t *ids;
  struct msgl_worker *workers;
  msgl_range *ranges;

  // The submission. Written by the thread that has finished a phase, while nobody
  // holds an item.
  const msgl_op *ops;
  int nops, index, code;
  int64_t *ns;        // where each operation's time goes, or NULL
  int64_t since;      // when the current operation began
  int phase;          // the next one of the job
  msgl_job job;
  _Atomic int quit;

  pthread_mutex_t mutex;
  pthread_cond_t wake;
  _Atomic int64_t step;             // items that a thread claims at a time in this phase
  // Changes when there is a phase to run (even) or nothing to do (odd).
  _Alignas(64) _Atomic uint32_t turn;
  _Alignas(64) _Atomic int64_t left;  // items of the phase that are not done
  _Alignas(64) _Atomic int sleepers;
};

// The monotonic clock.
int64_t msgl_now_ns(void);

// Starts a turn and runs phases until there is nothing to do.
void msgl_run(msgl_pool *pool);

#endif
