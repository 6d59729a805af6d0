// emulated.h: what the emulation has beside msgl_cuda.h.
#ifndef MSGL_EMULATED_H
#define MSGL_EMULATED_H

#ifdef __cplusplus
extern "C" {
#endif

// The order in which the threads of a block run: 0 forward, 1 backward, 2 shuffled.
void msgl_emu_set_order(int order);

// Whether the processor has the instructions that the emulation is compiled for.
int msgl_emu_supported(void);

#ifdef __cplusplus
}
#endif

#endif
