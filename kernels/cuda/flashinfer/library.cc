// library.cc: the functions of msgl_fi.h.
#include "../../cpu/msgl.h"
#include "attend.h"

int msgl_fi_version(void) { return MSGL_FI_VERSION; }

template <int D> static int attend(const msgl_fi_task &task) {
  switch (task.dtype) {
    case MSGL_BF16: return msgl_fi::attend<D, MSGL_BF16>(task);
    case MSGL_F16: return msgl_fi::attend<D, MSGL_F16>(task);
    default: return MSGL_FI_LACKS;
  }
}

int msgl_fi_attend(const msgl_fi_task *task) {
  switch (task->d) {
    case 64: return attend<64>(*task);
    case 128: return attend<128>(*task);
    case 256: return attend<256>(*task);
    default: return MSGL_FI_LACKS;
  }
}
