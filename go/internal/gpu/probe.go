// Package gpu finds out whether there is a GPU, and starts the program that was built
// for GPUs if there is. It needs no CUDA: the driver's library is looked for at run time.
package gpu

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
//
// // Asks the driver for the number of GPUs. Returns what failed: 0 nothing, 1 the library
// // is not there, 2 it is not the driver's, 3 it did not start (*count: its code).
// static int probe(int *count) {
//   void *library = dlopen("libcuda.so.1", RTLD_NOW);
//   if (!library) return 1;
//   int (*start)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
//   int (*devices)(int *) = (int (*)(int *))dlsym(library, "cuDeviceGetCount");
//   if (!start || !devices) return 2;
//   int code = start(0);
//   if (code == 0) code = devices(count);
//   if (code != 0) *count = code;
//   return code == 0 ? 0 : 3;
// }
import "C"

import (
	"errors"
	"fmt"

	"github.com/minisgl/minisgl/go/internal/device"
)

// Open opens the first n GPUs, one for each rank of a model, and tells their maker's name
// for the last. Decoding lists of at most graphRows rows become CUDA graphs. It is nil but
// in the program that was built for GPUs.
var Open func(n, graphRows int) (devs []device.Device, name string, err error)

// FlashInfer lets attention on GPUs that Open has opened be FlashInfer's, for all lists from then on. The
// error says why it can't be, and what to do. It is nil where Open is.
var FlashInfer func(devs []device.Device) error

// FlashInferHeads are the sizes of heads that FlashInfer's library is compiled for.
var FlashInferHeads = []int{64, 128, 256}

// Program is the name of the program that was built for GPUs; it lies beside the
// one that was not.
const Program = "minisgl-cuda"

// Count returns the number of GPUs that the driver offers; the error says why there
// is none.
func Count() (int, error) {
	var count C.int
	switch C.probe(&count) {
	case 1:
		return 0, errors.New("there is no NVIDIA driver (libcuda.so.1)")
	case 2:
		return 0, errors.New("libcuda.so.1 is not NVIDIA's driver: it has no cuInit")
	case 3:
		return 0, fmt.Errorf("the NVIDIA driver does not start: CUDA error %d", int(count))
	}
	if count == 0 {
		return 0, errors.New("the NVIDIA driver finds no GPU")
	}
	return int(count), nil
}
