"""The stub of the native module says what the module has; ``make lint`` compares the package with stubtest."""

from __future__ import annotations

import ast
import importlib
import re

from conftest import ROOT

STUB = ROOT / "python/minisgl/_native/_minisgl_native.pyi"
TYPES = {"int64_t": "int", "char *": "str"}


def test_the_stub_has_each_functions_arguments() -> None:
    """They are in the docstrings, which gopy has made: ``native_Wait(job, timeoutMs)`` and a line for each type."""
    module = importlib.import_module("minisgl._native._minisgl_native")
    told = {}
    for name, function in vars(module).items():
        if name.startswith("native_"):
            types = re.findall(r"^type: (\w+): (.+)$", function.__doc__, re.MULTILINE)
            told[name] = [(argument, TYPES[kind]) for argument, kind in types]
    stub = {}
    for node in ast.parse(STUB.read_text()).body:
        assert isinstance(node, ast.FunctionDef)
        stub[node.name] = [(arg.arg, ast.unparse(arg.annotation)) for arg in node.args.args if arg.annotation]
    assert stub == told
