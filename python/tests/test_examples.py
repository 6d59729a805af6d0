"""python/examples/: each runs, in small form on the tiny model."""

from __future__ import annotations

import re
import subprocess
import sys

from conftest import ROOT

EXAMPLES = ROOT / "python/examples"

RUNS = {
    "ablations.py": ["--batch-tokens", "4", "--cache-tokens", "2"],
    "async_requests.py": ["--max-tokens", "8"],
    "multi_turn.py": ["--users", "2", "--turns", "3", "--new-tokens", "8", "--max-tokens", "4"],
    "streaming.py": ["--max-tokens", "4"],
}


def run(name: str, model: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), "--model", model, *RUNS[name]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_run() -> None:
    elsewhere = {"structured_output.py"}  # in its own test
    assert {path.name for path in EXAMPLES.glob("*.py")} - elsewhere == set(RUNS)


def test_the_ablations_give_the_books_counts(tiny: str) -> None:
    out = run("ablations.py", tiny)
    assert re.findall(r"max_running_req=(\d+)", out) == ["1", "4", "16"]
    assert re.findall(r"(naive|radix) +(\d+) prompt tokens", out) == [("naive", "6656"), ("radix", "656")]


def test_turns(tiny: str) -> None:
    counts = dict(re.findall(r"(naive|radix): .* (\d+) prompt tokens computed", run("multi_turn.py", tiny)))
    # 3 turns of 8 and of 12 tokens more each, for two users, and the warm-up's 3. With the radix cache a turn
    # computes its own 8 and the last answer's last token, whose KV nobody needed before.
    assert counts == {"naive": str(2 * (8 + 20 + 32) + 3), "radix": str(2 * (8 + 9 + 9) + 3)}


def test_streaming(tiny: str) -> None:
    assert "\n[TTFT " in run("streaming.py", tiny)


def test_async_requests(tiny: str) -> None:
    ends = re.search(r"^(\d) complete, (\d) cancelled$", run("async_requests.py", tiny), re.MULTILINE)
    assert ends is not None
    assert int(ends[1]) >= 1
    assert int(ends[1]) + int(ends[2]) == 3
