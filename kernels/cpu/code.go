package cpu

import "C"

// CodeErr returns the error that an msgl_code stands for, for other kernels that
// share msgl.h.
func CodeErr(code int) error { return codeErr(C.int(code)) }
