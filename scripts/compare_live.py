"""Tries bench/compare on live servers: it must find a planted slowdown of 10%, and next to nothing without one.

    make bench-compare        (MODEL=smollm2-135m, or MODEL=none for mock servers only)

First two mock servers whose answers vary by a tenth: ten comparisons of equal ones, and one whose second server is a
tenth slower. Then two of minisgl's own servers with a real model, each behind a proxy here: one comparison of equals,
and one in which the second proxy hands everything on after 1.1 times the time that it took. About 7 minutes; nothing
else should run meanwhile. Ends with an error if the slowdown is missed, or if more than one comparison of equals
raises an alarm.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "bin" / "minisgl-bench"
SLOWER = 1.1
EQUALS = 10
REPEATS = 5
REGRESSION = 3  # exit code of compare
LIMIT = 600.0  # seconds that one comparison may take

MOCK_LOAD = ["--num-prompts", "40", "--request-rate", "40", "--random-input-len", "32", "--random-output-len", "16"]
# One at a time: where requests queue, one schedule differs from the next by more than a tenth.
MODEL_LOAD = ["--num-prompts", "20", "--max-concurrency", "1", "--random-input-len", "64", "--random-output-len", "24"]


@contextmanager
def process(command: list[str], ready: Callable[[str], str | None]) -> Iterator[str]:
    """Runs a server; yields what ready makes of the first line that it accepts."""
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert server.stdout is not None
        url = next((found for line in server.stdout if (found := ready(line))), None)
        if url is None:
            raise SystemExit(f"{' '.join(command)} ended before it was ready")
        threading.Thread(target=server.stdout.read, daemon=True).start()  # so that its log never fills the pipe
        yield url
    finally:
        server.terminate()
        server.wait(60)


def mock(seed: int, slower: float = 1.0) -> list[str]:
    """The command of a mock server."""
    delays = ["--ttft", f"{20 * slower:g}ms", "--itl", f"{5 * slower:g}ms", "--jitter", "0.1", "--seed", str(seed)]
    return [str(BENCH), "mockserver", "--listen", "127.0.0.1:0", *delays]


def mock_url(line: str) -> str | None:
    """The address in a mock server's first line."""
    return line.split()[-1] if line.startswith("Serving on ") else None


def minisgl_url(line: str) -> str | None:
    """The address in the line with which minisgl's server says that it is ready."""
    return next((word[4:] for word in line.split() if word.startswith("url=")), None) if "ready" in line else None


def stretching(url: str, factor: float) -> list[str]:
    """The command of a proxy that slows a server down."""
    return [sys.executable, __file__, "--proxy", url, "--factor", str(factor)]


async def proxy(url: str, factor: float) -> None:
    """Hands on what comes t after a request when t * factor have passed."""
    host, port = url.removeprefix("http://").split(":")
    clock = asyncio.get_running_loop().time

    async def connection(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection(host, int(port))
        asked = clock()

        async def questions() -> None:
            nonlocal asked
            while data := await client.read(1 << 16):
                asked = clock()
                to_server.write(data)
            to_server.close()

        async def answers() -> None:
            later = asyncio.get_running_loop().call_at
            while data := await server.read(1 << 16):
                later(asked + factor * (clock() - asked), to_client.write, data)
            later(asked + factor * (clock() - asked), to_client.close)

        await asyncio.gather(questions(), answers(), return_exceptions=True)

    listener = await asyncio.start_server(connection, "127.0.0.1", 0)
    print(f"Serving on http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", flush=True)
    await listener.serve_forever()


def compare(name: str, a: str, b: str, load: list[str]) -> bool:
    """Compares two servers, prints the verdict, and tells whether it is a regression."""
    command = [str(BENCH), "compare", "--a-url", a, "--b-url", b, "--repeats", str(REPEATS), "--backend", "minisgl"]
    command += ["--dataset-name", "random-ids", "--random-range-ratio", "1", *load, "--quiet"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT)
    if done.returncode not in (0, REGRESSION):
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    verdict = next(line for line in done.stdout.splitlines() if not line.startswith(("│", "┌", "├", "└", "Medians")))
    print(f"{name}: exit code {done.returncode}: {verdict}", flush=True)
    return done.returncode == REGRESSION


def mocks() -> tuple[int, bool]:
    """Compares mock servers: how many of the equal ones raised an alarm, and whether the slower one was found."""
    alarms = 0
    for turn in range(EQUALS):
        with process(mock(2 * turn), mock_url) as a, process(mock(2 * turn + 1), mock_url) as b:
            alarms += compare(f"mock servers, equal, {turn + 1} of {EQUALS}", a, b, MOCK_LOAD)
    with process(mock(100), mock_url) as a, process(mock(101, SLOWER), mock_url) as b:
        return alarms, compare("mock servers, the second a tenth slower", a, b, MOCK_LOAD)


def real(model: str) -> tuple[int, bool]:
    """The same with two servers of minisgl, and one comparison of equals."""
    command = [str(ROOT / "bin" / "minisgl"), "serve", "--model", model, "--port", "0"]
    with ExitStack() as stack:
        a, b = (stack.enter_context(process(command, minisgl_url)) for _ in range(2))
        a, same, slower = (
            stack.enter_context(process(stretching(url, factor), mock_url))
            for url, factor in ((a, 1.0), (b, 1.0), (b, SLOWER))
        )
        alarm = compare(f"{model}, equal", a, same, MODEL_LOAD)
        return int(alarm), compare(f"{model}, the second a tenth slower", a, slower, MODEL_LOAD)


def main() -> None:
    """Runs the comparisons and judges them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="model of minisgl's servers; none: mock servers only")
    parser.add_argument("--proxy", help=argparse.SUPPRESS)
    parser.add_argument("--factor", type=float, default=1.0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.proxy:
        asyncio.run(proxy(args.proxy, args.factor))
        return
    alarms, found = mocks()
    if args.model != "none":
        more, also = real(args.model)
        alarms, found = alarms + more, found and also
    print(f"{alarms} false alarm(s); the slowdown was {'found' if found else 'missed'}.")
    if alarms > 1 or not found:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
