"""Compares minisgl with llama.cpp on this machine: both in turn, several rounds, and the table of ratios.

    make bench-peers        (ROUNDS=3 MODELS=qwen3-bf16,smollm2 THREADS=2)

The peer is the newest llama-cpp-python, built from source for this machine (some minutes, once) in an
environment in the cache. Both read the same files: Qwen3-0.6B's shape with random weights, in bfloat16 and as
llama.cpp quantizes it, and SmolLM2-135M's real Q4_1. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(
    os.environ.get("MINISGL_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minisgl"
)
ENVIRONMENT = CACHE / "env" / "peers"
SHAPE = ROOT / "models" / "Qwen3-0.6B"
CASES = {
    "prefill 512": "512",
    "decode 1": "1x32+64",
    "decode 4": "4x32+64",
    "decode 8": "8x32+64",
    "decode 16": "16x32+64",
    "decode 1 at 2048": "1x2048+32",
    "16 x (256 in, 32 out)": "16x256+32",
}
MODELS = {"qwen3-bf16": "bf16", "qwen3-q8_0": "q8_0", "qwen3-q4_0": "q4_0", "smollm2": None}


def run(command: list[str], **kwargs: object) -> str:
    """Runs a program to its end and returns what it printed."""
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, **kwargs)  # type: ignore[call-overload]
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[:3])} … failed with exit code {done.returncode}")
    return str(done.stdout)


def environment() -> Path:
    """The Python of the peer's environment, which is made if it is not there."""
    python = ENVIRONMENT / "bin" / "python"
    ready = ENVIRONMENT / ".ready"
    if not ready.exists():
        print("peers: building llama-cpp-python for this machine (some minutes, once)", file=sys.stderr)
        run([sys.executable, "-m", "venv", str(ENVIRONMENT)])
        # Without the library for images, which takes longer to build than all else.
        build = os.environ | {"CMAKE_ARGS": "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF"}
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, "--no-binary", "llama-cpp-python", "llama-cpp-python", "gguf"], env=build)
        ready.touch()
    return python


def files(python: Path, names: list[str]) -> dict[str, Path]:
    """The models' GGUF files, made or fetched where they are missing."""
    out = {}
    folder = CACHE / "peers" / "qwen3-0.6b"
    for name in names:
        form = MODELS[name]
        if form is None:
            out[name] = Path(run([str(ROOT / "bin" / "minisgl"), "fetch", "smollm2-135m"]).strip())
            continue
        if not (folder / f"{form}.gguf").exists():
            run(["make", "--silent", "-C", str(ROOT), "models/Qwen3-0.6B"])
            print("peers: writing GGUF files of Qwen3-0.6B's shape", file=sys.stderr)
            run([str(python), str(ROOT / "scripts" / "peers" / "qwen3_gguf.py"), str(SHAPE), str(folder)])
        out[name] = folder / f"{form}.gguf"
    return out


def measure(command: list[str]) -> list[float]:
    """Tokens per second of each case."""
    return [result["tokens_per_second"] for result in json.loads(run(command))["results"]]


def compare(python: Path, model: Path, threads: int, rounds: int) -> list[tuple[float, float]]:
    """Medians of each case, ours and the peer's, from runs in turn."""
    cases = ",".join(CASES.values())
    ours_command = [str(ROOT / "bin" / "minisgl"), "bench", "--model", str(model), "--json", "--repeat", "1"]
    ours_command += ["--cases", cases, "--threads", str(threads), "--num-pages", "16384", "--dtype", "bfloat16"]
    peer_command = [str(python), str(ROOT / "scripts" / "peers" / "llama_cpp_bench.py"), str(model)]
    peer_command += ["--cases", cases, "--threads", str(threads)]
    ours, peer = [], []
    for number in range(rounds):
        print(f"peers: {model.name}, round {number + 1} of {rounds}", file=sys.stderr)
        ours.append(shown("minisgl", measure(ours_command)))
        peer.append(shown("llama.cpp", measure(peer_command)))
    return [
        (statistics.median(run[i] for run in ours), statistics.median(run[i] for run in peer))
        for i in range(len(CASES))
    ]


def shown(side: str, speeds: list[float]) -> list[float]:
    """Shows what a round gave, so that a run that is ended early was not for nothing."""
    print(f"peers: {side:9}", *(f"{speed:8.1f}" for speed in speeds), file=sys.stderr)
    return speeds


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def main() -> None:
    """Measures and prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS), help="some of " + ", ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    names = args.models.split(",")
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"--models: {unknown[0]!r} is not one of {', '.join(MODELS)}")
    python = environment()
    version = run([str(python), "-c", "import llama_cpp; print(llama_cpp.__version__)"]).strip()
    paths = files(python, names)
    print(f"minisgl / llama.cpp (llama-cpp-python {version}): tokens/s and ratio.")
    print(f"Medians of {args.rounds} rounds in turn.")
    print(f"{processor()}, {args.threads} threads, {time.strftime('%Y-%m-%d')}.\n")
    print("| model | " + " | ".join(CASES) + " |")
    print("|---" * (len(CASES) + 1) + "|")
    for name in names:
        pairs = compare(python, paths[name], args.threads, args.rounds)
        cells = [f"{a:.1f} / {b:.1f} = **{a / b:.2f}**" for a, b in pairs]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
