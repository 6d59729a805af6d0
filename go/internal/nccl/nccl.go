// Package nccl lets GPUs of one process exchange what they computed, by NVIDIA's library,
// which is looked for at run time. It needs no CUDA to be built.
package nccl

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdint.h>
// #include <stdlib.h>
//
// enum { FLOAT32 = 7 };  // ncclFloat32
//
// static struct {
//   int (*init)(void **comms, int n, const int *devices);
//   int (*all_gather)(const void *own, void *all, size_t count, int type, void *comm, void *stream);
//   int (*abort)(void *comm);
//   int (*destroy)(void *comm);
//   const char *(*message)(int code);
// } nccl;
//
// // Loads the library; NULL, or what is wrong.
// static const char *load(void) {
//   if (nccl.message) return NULL;
//   void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
//   if (!library) return dlerror();
//   *(void **)&nccl.init = dlsym(library, "ncclCommInitAll");
//   *(void **)&nccl.all_gather = dlsym(library, "ncclAllGather");
//   *(void **)&nccl.abort = dlsym(library, "ncclCommAbort");
//   *(void **)&nccl.destroy = dlsym(library, "ncclCommDestroy");
//   if (!nccl.init || !nccl.all_gather || !nccl.abort || !nccl.destroy) return "libnccl.so.2 lacks a function of NCCL's";
//   *(void **)&nccl.message = dlsym(library, "ncclGetErrorString");
//   return nccl.message ? NULL : "libnccl.so.2 lacks a function of NCCL's";
// }
//
// // A rank's connection. The flag is that of all ranks, which an abort sets.
// struct rank {
//   void *comm;
//   int *aborted;
// };
//
// static int is_aborted(const struct rank *ranks) { return __atomic_load_n(ranks[0].aborted, __ATOMIC_ACQUIRE); }
//
// // msgl_cuda_gather of kernels/cuda.
// static int gather(uint64_t rank, void *all, const void *own, uint64_t count, uint64_t stream) {
//   struct rank *r = (struct rank *)(uintptr_t)rank;
//   if (is_aborted(r)) return -1;
//   return nccl.all_gather(own, all, count, FLOAT32, r->comm, (void *)(uintptr_t)stream);
// }
// static void *gather_address(void) { return (void *)gather; }
//
// static int connect(void **comms, int n, const int *devices) { return nccl.init(comms, n, devices); }
// static void disconnect(struct rank *ranks, int n) {
//   for (int i = 0; i < n && !is_aborted(ranks); i++) nccl.destroy(ranks[i].comm);
// }
// static void abort_all(struct rank *ranks, int n) {
//   if (__atomic_exchange_n(ranks[0].aborted, 1, __ATOMIC_ACQ_REL)) return;
//   for (int i = 0; i < n; i++) nccl.abort(ranks[i].comm);
// }
// static const char *message(int code) { return nccl.message(code); }
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

// Group is GPUs that exchange.
type Group struct {
	ranks  *C.struct_rank // of C's memory, as is what it points to
	n      int
	closed sync.Once
}

var loading sync.Mutex

// Open connects the first n GPUs of the machine.
func Open(n int) (*Group, error) {
	loading.Lock()
	defer loading.Unlock()
	if why := C.load(); why != nil {
		return nil, fmt.Errorf("%d ranks exchange by NVIDIA's NCCL, which can't be loaded: %s; install libnccl.so.2 (Debian: libnccl2; PyPI: nvidia-nccl-cu12, whose lib folder LD_LIBRARY_PATH must name), or use one GPU", n, C.GoString(why))
	}
	comms, devices := make([]unsafe.Pointer, n), make([]C.int, n)
	for i := range devices {
		devices[i] = C.int(i)
	}
	if code := C.connect(&comms[0], C.int(n), &devices[0]); code != 0 {
		return nil, fmt.Errorf("NCCL can't connect %d GPUs: %s; NCCL_DEBUG=WARN tells more", n, C.GoString(C.message(code)))
	}
	g := &Group{ranks: (*C.struct_rank)(C.calloc(C.size_t(n), C.size_t(unsafe.Sizeof(C.struct_rank{})))), n: n}
	aborted := (*C.int)(C.calloc(1, C.size_t(unsafe.Sizeof(C.int(0)))))
	for i := range n {
		*g.rank(i) = C.struct_rank{comm: comms[i], aborted: aborted}
	}
	return g, nil
}

func (g *Group) rank(i int) *C.struct_rank { return &unsafe.Slice(g.ranks, g.n)[i] }

// Rank returns what kernels/cuda needs to let a rank exchange: a C function, and what that
// knows the rank by.
func (g *Group) Rank(i int) (gather unsafe.Pointer, rank uint64) {
	return C.gather_address(), uint64(uintptr(unsafe.Pointer(g.rank(i))))
}

// Abort ends all exchanges, those that run as well.
func (g *Group) Abort() { C.abort_all(g.ranks, C.int(g.n)) }

// Aborted reports whether exchanges were ended.
func (g *Group) Aborted() bool { return C.is_aborted(g.ranks) != 0 }

// Close disconnects the GPUs, which have nothing in flight. It may be called again.
func (g *Group) Close() {
	g.closed.Do(func() {
		C.disconnect(g.ranks, C.int(g.n))
		C.free(unsafe.Pointer(g.rank(0).aborted))
		C.free(unsafe.Pointer(g.ranks))
	})
}
