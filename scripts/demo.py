"""The main job on a real small model: generate, serve and chat, measure.

`make demo` runs it after building everything. It leaves no process behind.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = "smollm2-135m"
PROMPTS = [
    "What is the capital of France? Answer in one sentence.",
    "Write a haiku about the sea.",
    "Explain in two sentences why the sky is blue.",
]
START_TIMEOUT = 120.0
STOP_TIMEOUT = 40.0


def title(text: str) -> None:
    """Prints a section's heading."""
    print(f"\n== {text} ==", flush=True)


def generate() -> None:
    """Three prompts through the Python API, with the model's chat template."""
    from minisgl.core import SamplingParams
    from minisgl.llm import LLM

    title(f"1. Python: LLM({MODEL!r}).chat(...)")
    start = time.perf_counter()
    with LLM(MODEL, max_running_req=16) as llm:
        print(f"loaded in {time.perf_counter() - start:.1f} s", flush=True)
        conversations = [[{"role": "user", "content": p}] for p in PROMPTS]
        start = time.perf_counter()
        outputs = llm.chat(conversations, SamplingParams(max_tokens=96))
        seconds = time.perf_counter() - start
    for prompt, out in zip(PROMPTS, outputs, strict=True):
        print(f"\nQ: {prompt}\nA: {out['text'].removesuffix('<|im_end|>').strip()}")
    tokens = sum(len(out["token_ids"]) for out in outputs)
    print(f"\n{tokens} tokens in {seconds:.2f} s: {tokens / seconds:.1f} tokens/s")


def free_port() -> int:
    """Returns a TCP port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def server(port: int) -> Iterator[str]:
    """Runs `python -m minisgl` on a port; yields its URL once it is ready."""
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "minisgl", "--model", MODEL, "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        wait_until_ready(process, url)
        yield url
    finally:
        stop(process)


def wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    """Polls /health until the server answers 200."""
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with exit code {process.returncode} before it was ready")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit(f"the server was not ready after {START_TIMEOUT:.0f} s")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the server as an operator would; kills it if it does not go."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise SystemExit(f"the server did not stop within {STOP_TIMEOUT:.0f} s") from None
    if code != 0:
        raise SystemExit(f"the server ended with exit code {code}")


def stream_chat(url: str, question: str) -> None:
    """One streamed chat, printed as it comes."""
    title(f"2. Server: POST {url}/v1/chat/completions, streamed")
    body = {"model": MODEL, "messages": [{"role": "user", "content": question}], "max_tokens": 96, "stream": True}
    body["temperature"] = 0
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    print(f"Q: {question}\nA: ", end="", flush=True)
    with urllib.request.urlopen(request, timeout=60) as response:
        for line in response:
            data = line.decode().strip().removeprefix("data: ")
            if data and data != "[DONE]":
                for choice in json.loads(data)["choices"]:
                    print(choice["delta"].get("content") or "", end="", flush=True)
    print()


def measure(url: str) -> None:
    """32 requests at 8 a second, with the Go bench client."""
    command = ["go", "run", "./bench/client", "--rate", "8", "--num-requests", "32", "--max-tokens", "32", "--url", url]
    title("3. Bench: " + " ".join(command))
    subprocess.run(command, cwd=ROOT, check=True)


def main() -> None:
    """Runs the three parts."""
    os.environ.setdefault("LOG_LEVEL", "WARNING")
    generate()
    with server(free_port()) as url:
        stream_chat(url, "Give me three tips for a good night's sleep.")
        measure(url)
    title("done: the server has stopped")


if __name__ == "__main__":
    main()
