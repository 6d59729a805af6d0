// pool.h: what submit.c needs of the pool of threads.
#ifndef MSGL_POOL_H
#define MSGL_POOL_H

#include <pthread.h>
#include <stdatomic.h>

#include "internal.h"

// Items [next, end) that a thread is to run first; the others help when they
// have run out of their own.
typedef struct {
  _Alignas(64) _Atomic int64_t next;
  int64_t end;
} msgl_range;

struct msgl_pool {
  int threads, started;
  int64_t spin_ns;    // how long a waiting thread spins before it sleeps
  pthread_t *ids;
  struct msgl_worker *workers;
  msgl_range *ranges;

  // The submission. Written by one thread at a time, while the others wait.
  const msgl_op *ops;
  int nops, index, code;
  int phase;          // the next one of the job
  msgl_job job;
  _Atomic int quit;

  pthread_mutex_t mutex;
  pthread_cond_t wake;
  // Changes when there is a phase to run (even) or nothing to do (odd).
  _Alignas(64) _Atomic uint32_t turn;
  _Alignas(64) _Atomic int arrived;   // threads that have finished the phase
  _Alignas(64) _Atomic int sleepers;
};

// Moves to the next phase that needs all threads, running on the way what one
// thread does alone. Returns 0 at the end of the list or at an error.
int msgl_advance(msgl_pool *pool);

// Starts a turn and runs phases until there is nothing to do.
void msgl_run(msgl_pool *pool);

#endif
