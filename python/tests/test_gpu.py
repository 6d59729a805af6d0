"""Which native module is loaded: the driver is asked, in a Python of its own, by libraries that pass for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from minisgl import _gpu

START = "int cuInit(unsigned flags) {{ return {}; }} "
COUNT = "int cuDeviceGetCount(int *count) {{ *count = {}; return 0; }}"
CHOOSE = """
import importlib.util, logging, sys
from minisgl import _gpu
importlib.util.find_spec = lambda name: name if sys.argv[1] == "built" else None
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
print(_gpu.native_module())
"""


def choose(folder: Path, source: str, built: str) -> list[str]:
    """Returns what is logged, and the module that is chosen, where source is the driver."""
    (folder / "driver.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "driver.c"], check=True)
    command = [sys.executable, "-c", CHOOSE, built]
    return subprocess.run(
        command, env={"LD_LIBRARY_PATH": str(folder)}, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def test_a_gpu_gets_the_module_that_is_built_for_it(tmp_path: Path) -> None:
    driver = START.format("flags") + COUNT.format("2")
    assert choose(tmp_path, driver, "built") == [_gpu.CUDA]
    assert choose(tmp_path, driver, "not built") == [_gpu.CPU]


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        (START.format("flags + 100") + COUNT.format("1"), "the NVIDIA driver does not start: CUDA error 100"),
        (START.format("flags") + COUNT.format("0"), "the NVIDIA driver finds no GPU"),
        ("int other(void) { return 0; }", "libcuda.so.1 is not NVIDIA's driver"),
    ],
)
def test_without_a_gpu_the_cpu_computes_and_the_log_tells_why(tmp_path: Path, driver: str, reason: str) -> None:
    logged, module = choose(tmp_path, driver, "built")
    assert logged.startswith(f"no GPU is used: {reason}")
    assert module == _gpu.CPU
