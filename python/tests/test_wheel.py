"""Building a wheel where it can't be built; scripts/wheel.sh is the test of where it can."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from conftest import ROOT


def test_missing_tools_are_named(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    (tmp_path / "bash").symlink_to(bash)
    done = subprocess.run(
        [sys.executable, "-c", "import wheel_build; wheel_build.build_native()"],
        cwd=ROOT / "python",
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    for tool in ("Go 1.26 or newer", "cargo", "a C compiler"):
        assert f"missing: {tool}" in done.stderr
    assert "minisgl can't be built here: scripts/check.sh failed" in done.stderr
