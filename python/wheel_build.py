"""Builds what is not Python when pip builds a wheel; pyproject.toml names these commands.

With MINISGL_CUDA=1 the wheel has the module for GPUs beside that for CPUs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent.parent
_STEPS = ("check.sh", "rust-lib.sh", "native.sh", "bench-program.sh")
_CUDA_STEPS = ("cuda.sh build",)


class BuildPy(build_py):
    """Copies the package, with the native module for the Python that runs this.

    An editable install leaves it out: there scripts/native.sh builds it in place.
    """

    def run(self) -> None:
        """Builds the module first, and keeps those of other Pythons out of the wheel."""
        if not self.editable_mode:
            build_native()
            shutil.rmtree(Path(self.build_lib) / "minisgl", ignore_errors=True)  # of an earlier build
        super().run()
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        wanted = {f"_minisgl_native{suffix}"}
        if _for_gpus():
            wanted |= {f"_minisgl_native_cuda{suffix}", "libmsgl_cuda.so"}
        for library in Path(self.build_lib).glob("minisgl/_native/*.so"):
            if library.name not in wanted:
                library.unlink()


class BdistWheel(bdist_wheel):
    """A wheel for one Python on one platform."""

    def finalize_options(self) -> None:
        """Says that there is compiled code, which setuptools did not compile."""
        self.distribution.has_ext_modules = lambda: True
        if _for_gpus():
            self.build_number = "1cuda"
        super().finalize_options()


def _for_gpus() -> bool:
    return os.environ.get("MINISGL_CUDA", "") not in ("", "0")


def build_native() -> None:
    """Runs the scripts that build the native module and the program minisgl-bench.

    Raises:
        SystemExit: A tool is missing, or a script failed; what was wrong is on standard
            error.
    """
    env = {**os.environ, "PYTHON": sys.executable, "MINISGL_BUILD_PYTHON": sys.executable}
    env.setdefault("GOFLAGS", "-trimpath")  # as the Makefile does, so that what it compiled is not compiled again
    for step in _STEPS + (_CUDA_STEPS if _for_gpus() else ()):
        name, *args = step.split()
        script = ROOT / "scripts" / name
        if not script.is_file():
            raise SystemExit(f"minisgl is built from its repository, and {script} is not there")
        if subprocess.run(["bash", str(script), *args], env=env).returncode != 0:
            raise SystemExit(f"minisgl can't be built here: scripts/{name} failed, see above")
