"""Chooses the native module: that for GPUs where it is built and the NVIDIA driver answers, else that for CPUs."""

from __future__ import annotations

import ctypes
import importlib.util

from minisgl import _logs

CPU = "minisgl._native._minisgl_native"
CUDA = "minisgl._native._minisgl_native_cuda"


def native_module() -> str:
    """Returns the name of the native module to import.

    The one for GPUs must not be tried without a GPU: it ends the process.
    """
    if importlib.util.find_spec(CUDA) is None:
        return CPU
    missing = why_no_gpu()
    if not missing:
        return CUDA
    _logs.logger.info("no GPU is used: %s", missing)
    return CPU


def why_no_gpu() -> str:
    """Asks the driver for GPUs; tells why there is none, or nothing where there is one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"there is no NVIDIA driver ({error})"
    count = ctypes.c_int(0)
    try:
        code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    except AttributeError as error:
        return f"libcuda.so.1 is not NVIDIA's driver ({error})"
    if code != 0:
        return f"the NVIDIA driver does not start: CUDA error {code}"
    return "" if count.value > 0 else "the NVIDIA driver finds no GPU"
