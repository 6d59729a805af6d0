// attend.h: what attention.cu has for library.cc, once for each size of head and type of cache.
#ifndef MSGL_FI_ATTEND_H
#define MSGL_FI_ATTEND_H

#include "../msgl_fi.h"

namespace msgl_fi {

// Puts a task of heads of D and caches of DTYPE on its stream; returns a CUDA error or 0.
template <int D, int DTYPE> int attend(const msgl_fi_task &task);

}  // namespace msgl_fi

#endif
