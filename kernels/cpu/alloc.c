// alloc.c: anonymous memory on huge pages.
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "msgl.h"

#define HUGE_PAGE ((size_t)2 << 20)

static size_t rounded(size_t bytes) { return (bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1); }

int msgl_alloc(void **out, size_t bytes) {
  *out = NULL;
  if (bytes == 0 || bytes > SIZE_MAX / 2) return MSGL_ERR_MEMORY;
  // One huge page more than asked for, so that the start can be aligned to one.
  size_t want = rounded(bytes), mapped = want + HUGE_PAGE;
  char *p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return MSGL_ERR_MEMORY;
  char *start = (char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
  if (start != p) munmap(p, (size_t)(start - p));
  if (start + want != p + mapped) munmap(start + want, (size_t)(p + mapped - (start + want)));
#ifdef MADV_HUGEPAGE
  madvise(start, want, MADV_HUGEPAGE);  // advice only: without huge pages the memory works as well
#endif
  *out = start;
  return MSGL_OK;
}

int msgl_populate(void *p, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)p / page * page;
  if (madvise((void *)from, (uintptr_t)p + bytes - from, MADV_POPULATE_WRITE) == 0) return MSGL_OK;
#else
  (void)p, (void)bytes;
#endif
  return MSGL_ERR_MEMORY;
}

void msgl_free(void *p, size_t bytes) {
  if (p) munmap(p, rounded(bytes));
}
