// kernels_portable.c: the kernels in plain C with 128-bit vectors.
#define MSGL_ISA portable
#include "kernels_impl.h"
