"""Compares bench/serving with sglang's own Python client: the same seed against the same mock server.

    make bench-sglang

Both must send the same requests, and print the same labels and columns, the same token totals and the same JSON
keys. The client comes from PyPI, unmodified and without torch, into an environment in the cache (400 MB, once).
Where it cannot be had, this says so and does nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(
    os.environ.get("MINISGL_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minisgl"
)
VERSION = "0.5.23"
ENVIRONMENT = CACHE / "env" / f"sglang-client-{VERSION}"
PACKAGES = ["aiohttp", "msgspec", "numpy", "orjson", "requests", "tqdm", "transformers", "pillow", "pybase64", "jinja2"]
TOKENIZER = ROOT / "go" / "tokenizer" / "testdata" / "llama"
SHAREGPT = ROOT / "bench" / "internal" / "dataset" / "testdata" / "sharegpt.json"

# The parts of the package that the client imports beside itself, of which it needs only this much.
STUBS = {
    "sglang/__init__.py": "",
    "sglang/srt/__init__.py": "",
    "sglang/srt/disaggregation/__init__.py": "",
    "sglang/srt/disaggregation/utils.py": 'FAKE_BOOTSTRAP_HOST = "2.2.2.2"\n',
    "sglang/srt/utils/__init__.py": "",
    "sglang/srt/utils/network.py": (
        'def resolve_base_url(b, h, p):\n    return b or f"http://{h}:{p}"\n\n\n'
        'def resolve_host_port(b, h, p):\n    return b or f"{h}:{p}"\n'
    ),
    "datasets/__init__.py": 'def load_dataset(*a, **k):\n    raise RuntimeError("no hub here")\n',
}

RANDOM = ["--random-input-len", "24", "--random-output-len", "12", "--request-rate", "100"]
PREFIX = ["--dataset-name", "generated-shared-prefix", "--gsp-system-prompt-len", "16", "--gsp-question-len", "6"]
PREFIX += ["--gsp-output-len", "5", "--gsp-range-ratio", "0.5"]
CASES = {
    "random-ids": ["--dataset-name", "random-ids", *RANDOM],
    "random-ids, exact": ["--dataset-name", "random-ids", *RANDOM, "--random-range-ratio", "1"],
    "random": ["--dataset-name", "random", "--dataset-path", str(SHAREGPT), *RANDOM],
    "sharegpt": ["--dataset-name", "sharegpt", "--dataset-path", str(SHAREGPT)],
    "goodput": ["--dataset-name", "random-ids", *RANDOM, "--goodput", "ttft:60000", "tpot:60000", "e2el:60000"],
    "cache report": ["--dataset-name", "random-ids", *RANDOM, "--cache-report"],
    "shared prefix": [*PREFIX, "--gsp-num-groups", "3", "--gsp-prompts-per-group", "4"],
}
BACKENDS = ["sglang", "sglang-oai", "sglang-oai-chat", "vllm"]

# The rows whose values must be equal; those of the others are measured. Of the cache, sglang's client knows
# nothing but with its own API.
EQUAL = (
    "Backend:",
    "Traffic request rate:",
    "Max request concurrency:",
    "Successful requests:",
    "Total input tokens:",
    "Total input text tokens:",
    "Total generated tokens:",
    "Total generated tokens (retokenized):",
    "SLOs (ms):",
    "SLO attainment (%):",
    "TTFT SLO attainment (%):",
    "TPOT SLO attainment (%):",
    "E2EL SLO attainment (%):",
)
EQUAL_NATIVE = ("Total prompt tokens:", "Total cached tokens:", "Cache hit rate:")


def skip(reason: str) -> None:
    """Ends without a comparison."""
    print(f"skipped: {reason}")
    raise SystemExit(0)


def environment() -> Path:
    """The environment with the client, made if it is not there."""
    ready = ENVIRONMENT / ".ready"
    if ready.exists():
        return ENVIRONMENT
    print(f"parity: installing sglang {VERSION}'s client (400 MB, once)", file=sys.stderr)
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    ENVIRONMENT.mkdir(parents=True)
    python = ENVIRONMENT / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", str(ENVIRONMENT / "venv")],
        [*pip, "install", *PACKAGES],
        [*pip, "download", "--no-deps", "--dest", str(ENVIRONMENT), f"sglang=={VERSION}"],
    ):
        if subprocess.run(command, check=False).returncode != 0:
            skip(f"sglang {VERSION}'s client cannot be installed here: {' '.join(command[-3:])} failed")
    wheel = next(ENVIRONMENT.glob("sglang-*.whl"))
    shutil.unpack_archive(str(wheel), str(ENVIRONMENT / "wheel"), "zip")
    wheel.unlink()
    shim = ENVIRONMENT / "shim"
    for name, text in STUBS.items():
        (shim / name).parent.mkdir(parents=True, exist_ok=True)
        (shim / name).write_text(text)
    shutil.copytree(ENVIRONMENT / "wheel" / "sglang" / "benchmark", shim / "sglang" / "benchmark")
    shutil.rmtree(ENVIRONMENT / "wheel")
    ready.touch()
    return ENVIRONMENT


class Run:
    """What one client sent and printed."""

    def __init__(self, command: list[str], folder: Path, environ: dict[str, str], bench: Path, backend: str) -> None:
        record, result = folder / "bodies.jsonl", folder / "result.jsonl"
        mock = [str(bench), "mockserver", "--listen", "127.0.0.1:0", "--record", str(record), "--cached-tokens", "3"]
        server = subprocess.Popen([*mock, "--ttft", "5ms", "--itl", "2ms"], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            command = [*command, "--backend", backend, "--base-url", url, "--output-file", str(result)]
            done = subprocess.run(
                command, capture_output=True, text=True, env=os.environ | environ, check=False, cwd=folder, timeout=300
            )
        finally:
            server.terminate()
            server.wait()
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        self.table = table(done.stdout)
        self.line = json.loads(result.read_text().replace("Infinity", '"inf"'))
        self.requests = Counter(prompt(json.loads(body)) for body in record.read_text().splitlines())


def table(text: str) -> list[str]:
    """The lines of the result table."""
    found = re.search(r"^=+ Serving Benchmark Result =+$.*?^={50}$", text, re.MULTILINE | re.DOTALL)
    if not found:
        raise SystemExit(f"no result table in:\n{text}")
    return found.group().split("\n")


def prompt(body: dict[str, object]) -> str:
    """What a request asks for, however it is said."""
    sampling = body.get("sampling_params")
    length = body.get("max_tokens") or body.get("max_completion_tokens")
    if isinstance(sampling, dict):
        length = sampling["max_new_tokens"]
    messages = body.get("messages")
    text = body.get("text") or body.get("prompt") or (messages[0]["content"] if isinstance(messages, list) else "")
    return f"{length}: {text!r}"


def cell(line: str) -> tuple[str, str]:
    """A row's label and value; a title is all label."""
    if line[:1] in "-=":
        return line, ""
    return line[:41].rstrip(), line[41:].rstrip()


def differences(ours: Run, theirs: Run, native: bool) -> list[str]:
    """What is not as it must be."""
    out = []
    if ours.requests != theirs.requests:
        extra = list((ours.requests - theirs.requests).elements())
        missing = list((theirs.requests - ours.requests).elements())
        out.append(f"{len(missing)} requests of theirs are not ours, such as {missing[:1]} instead of {extra[:1]}")
    if len(ours.table) != len(theirs.table):
        out.append(f"{len(ours.table)} lines instead of {len(theirs.table)}")
    for mine, other in zip(ours.table, theirs.table, strict=False):
        (label, value), (want, wanted) = cell(mine), cell(other)
        if label != want:
            out.append(f"line {mine!r} instead of {other!r}")
        elif value != wanted and (label in EQUAL or (native and label in EQUAL_NATIVE)):
            out.append(f"{label} {value} instead of {wanted}")
        elif wanted and (mine[40] != " " or (max(len(value), len(wanted)) <= 10 and len(mine) != len(other))):
            out.append(f"columns {mine!r} instead of {other!r}")
    if missing := set(theirs.line) - set(ours.line):
        out.append(f"JSON keys are missing: {', '.join(sorted(missing))}")
    return out


def main() -> None:
    """Compares all cases and prints a line for each."""
    env = environment()
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        bench = root / "minisgl-bench"
        subprocess.run(["go", "build", "-o", str(bench), "./bench/minisgl-bench"], cwd=ROOT, check=True)
        tokenizer = root / "tokenizer"
        shutil.copytree(TOKENIZER, tokenizer)
        (tokenizer / "config.json").write_text('{"model_type": "llama"}')
        # Else transformers 5 puts its own rules for Llama in the place of those in tokenizer.json.
        (tokenizer / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
        common = ["--model", str(tokenizer), "--served-model-name", "mock", "--num-prompts", "20", "--seed", "7"]
        common += ["--warmup-requests", "0", "--disable-tqdm"]
        theirs_command = [str(env / "venv" / "bin" / "python"), "-m", "sglang.benchmark.serving", *common]
        theirs_env = {"PYTHONPATH": str(env / "shim"), "HF_HUB_OFFLINE": "1", "HOME": str(root)}
        for name, arguments in CASES.items():
            for backend in BACKENDS:
                runs = []
                for command, environ in (([str(bench), "serving", *common], {}), (theirs_command, theirs_env)):
                    folder = Path(tempfile.mkdtemp(dir=root))
                    runs.append(Run([*command, *arguments], folder, environ, bench, backend))
                found = differences(runs[0], runs[1], native=backend == "sglang")
                rows, requests = len(runs[0].table), runs[0].requests.total()
                print(f"{name}, {backend}: " + ("; ".join(found) or f"{rows} lines and {requests} requests agree"))
                failed += bool(found)
    if failed:
        raise SystemExit(f"{failed} of {len(CASES) * len(BACKENDS)} comparisons with sglang {VERSION} differ")
    print(f"All {len(CASES) * len(BACKENDS)} comparisons with sglang {VERSION} agree.")


if __name__ == "__main__":
    main()
