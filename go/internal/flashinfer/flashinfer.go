// Package flashinfer finds the library of FlashInfer's attention that scripts/cuda.sh builds, at
// run time. It needs no CUDA to be built.
package flashinfer

// A program or module finds the library beside itself.

// #cgo LDFLAGS: -ldl -Wl,-rpath,$ORIGIN
// #include <dlfcn.h>
// #include <stddef.h>
//
// enum { VERSION = 1 };  // MSGL_FI_VERSION of kernels/cuda/msgl_fi.h
//
// struct loaded {
//   void *attend;     // msgl_fi_attend
//   const char *why;  // if not NULL, there is none
// };
//
// // Loads the library, which stays.
// static struct loaded load(void) {
//   void *library = dlopen("libmsgl_flashinfer.so", RTLD_NOW | RTLD_LOCAL);
//   if (!library) return (struct loaded){NULL, dlerror()};
//   int (*version)(void) = (int (*)(void))dlsym(library, "msgl_fi_version");
//   void *attend = dlsym(library, "msgl_fi_attend");
//   if (!version || version() != VERSION || !attend) return (struct loaded){NULL, "libmsgl_flashinfer.so is of another version"};
//   return (struct loaded){attend, NULL};
// }
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Open returns the library's msgl_fi_attend, a C function.
func Open() (attend unsafe.Pointer, err error) {
	runtime.LockOSThread() // dlerror's message is the thread's
	defer runtime.UnlockOSThread()
	library := C.load()
	if library.why != nil {
		return nil, fmt.Errorf("FlashInfer's library can't be loaded: %s; make flashinfer builds it from minisgl's sources, for bin/minisgl-cuda and the Python module there (another program or module finds it beside itself, or by LD_LIBRARY_PATH)", C.GoString(library.why))
	}
	return library.attend, nil
}
