"""Programs written for mini-sglang's documents: dtypes of torch, the offline benchmark, a counted ``_forward``.

torch is a stand-in that has dtypes and nothing else, and the real one where it is installed.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

STAND_IN = """
class dtype:
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return "torch." + self.name

bfloat16, float32 = dtype("bfloat16"), dtype("float32")
"""

RunProgram = Callable[[str], str]


@pytest.fixture(params=["stand-in", "real"])
def run_program(request: pytest.FixtureRequest, tiny: str, tmp_path: Path) -> RunProgram:
    """Runs a program that imports torch, with the model's path in PATH, and returns its output."""
    path = os.environ.get("PYTHONPATH", "")
    if request.param == "stand-in":
        (tmp_path / "torch.py").write_text(STAND_IN)
        path = f"{tmp_path}{os.pathsep}{path}"
    elif importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed; make test-torch says how to run this")

    def run(program: str) -> str:
        text = f"import torch\nPATH = {tiny!r}\n{program}"
        env = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


OFFLINE = """
from minisgl.benchmark.offline import run

result = run(PATH, num_seqs=6, max_input_len=40, max_output_len=16, dtype=torch.float32,
             max_running_req=8, num_page_override=1024, max_seq_len_override=128)
assert result["throughput"] > 0
print(result["output_tokens"])
"""


def test_the_offline_benchmark(run_program: RunProgram) -> None:
    assert run_program(OFFLINE) == "42\n"


ABLATIONS = """
from minisgl.core import SamplingParams
from minisgl.llm import LLM

prompts = [[i, 2 * i, 3 * i] for i in range(1, 9)]
for max_running in (1, 4):
    llm = LLM(PATH, dtype=torch.bfloat16, max_running_req=max_running, num_page_override=4096, max_seq_len_override=256)
    out = llm.generate(prompts, SamplingParams(max_tokens=4, ignore_eos=True, temperature=0.6))
    print(sum(len(o["token_ids"]) for o in out))
    llm.shutdown()

shared = [i % 200 for i in range(400)]
prompts = [shared + [200 + i] * 16 for i in range(16)]
for cache in ("naive", "radix"):
    llm = LLM(PATH, dtype=torch.bfloat16, max_running_req=16, num_page_override=8192,
              max_seq_len_override=512, cache_type=cache)
    computed = []
    original = llm._forward
    llm._forward = lambda fi: (computed.append(len(fi.batch.positions)) if fi.batch.is_prefill else None,
                               original(fi))[1]
    llm.generate(prompts[:1], SamplingParams(max_tokens=1))
    llm.generate(prompts[1:], SamplingParams(max_tokens=8, ignore_eos=True))
    print(cache, sum(computed))
    llm.shutdown()
"""


def test_the_ablations(run_program: RunProgram) -> None:
    assert run_program(ABLATIONS) == "32\n32\nnaive 6656\nradix 656\n"
