package tokenizer

// #include <features.h>
// #ifdef __GLIBC__
// #include <malloc.h>
// static void give_back(void) { malloc_trim(0); }
// #else
// static void give_back(void) {}
// #endif
import "C"

// giveBack gives memory that the library has freed back to the system. glibc keeps
// it, for each of many arenas: 100 bytes for each byte of the largest text.
func giveBack() { C.give_back() }
