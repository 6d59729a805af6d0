"""What Python costs: LLM.generate in Python and llm.Generate in Go with the same load, in turns.

    make bench-python        (ROUNDS=5 MODEL=smollm2-135m)

The load is 32 requests of 64 random ids in and 64 tokens out. Each round starts a process for each side, which loads
the model, warms up and measures one call. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
REQUESTS, INPUT, OUTPUT = 32, 64, 64


def in_python(model: str) -> float:
    """Measures one call in this process and returns its seconds."""
    from minisgl.core import SamplingParams
    from minisgl.llm import LLM

    with LLM(model, dtype="auto") as llm:
        random = Random(0)

        def prompts(count: int) -> list[list[int]]:
            return [random.choices(range(llm.tokenizer.vocab_size), k=INPUT) for _ in range(count)]

        llm.generate(prompts(16), SamplingParams(max_tokens=16, ignore_eos=True))
        load = prompts(REQUESTS)
        start = time.perf_counter()
        outputs = llm.generate(load, SamplingParams(max_tokens=OUTPUT, ignore_eos=True))
        seconds = time.perf_counter() - start
    assert sum(len(output["token_ids"]) for output in outputs) == REQUESTS * OUTPUT
    return seconds


def measure_python(model: str) -> float:
    """Runs in_python in a process of its own."""
    command = [sys.executable, __file__, "--model", model, "--once"]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure_go(model: str) -> float:
    """Runs minisgl-bench offline and returns its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        flags = {
            "model": model,
            "num-prompts": REQUESTS,
            "random-input-len": INPUT,
            "random-output-len": OUTPUT,
            "random-range-ratio": 1,
            "result-filename": result,
        }
        command = [
            ROOT / "bin/minisgl-bench",
            "offline",
            "--quiet",
            *(f"--{name}={value}" for name, value in flags.items()),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        report = json.loads(result.read_text())
    assert report["total_output_tokens"] == REQUESTS * OUTPUT
    return float(report["total_latency"])


def main() -> None:
    """Runs the rounds and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--once", action="store_true", help="one call in Python; prints its seconds")
    args = parser.parse_args()
    if args.once:
        print(in_python(args.model))
        return
    python, go = [], []
    for number in range(args.rounds):
        for side in ("go", "python") if number % 2 else ("python", "go"):
            if side == "go":
                go.append(measure_go(args.model))
            else:
                python.append(measure_python(args.model))
        print(f"round {number + 1}: Go {go[-1]:.3f} s, Python {python[-1]:.3f} s", flush=True)
    medians = statistics.median(go), statistics.median(python)
    cost = 100 * (medians[1] / medians[0] - 1)
    print(f"medians of {args.rounds}: Go {medians[0]:.3f} s, Python {medians[1]:.3f} s: Python costs {cost:+.1f} %")


if __name__ == "__main__":
    main()
