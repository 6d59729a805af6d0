// emulated.h: what the emulation has beside msgl_cuda.h.
#ifndef MSGL_EMULATED_H
#define MSGL_EMULATED_H

#include "../msgl_fi.h"

#ifdef __cplusplus
extern "C" {
#endif

// The order in which the threads of a block run: 0 forward, 1 backward, 2 shuffled.
void msgl_emu_set_order(int order);

// Stands in for msgl_fi_attend, for heads of 64, 128 and 256.
int msgl_emu_attend(const msgl_fi_task *task);

// Whether the processor has the instructions that the emulation is compiled for.
int msgl_emu_supported(void);

#ifdef __cplusplus
}
#endif

#endif
