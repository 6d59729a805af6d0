"""minisgl.benchmark.client: against a server that says what it is told, and against ours."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import httpx
import numpy as np
import pytest
from server import Server, free_port

from minisgl.benchmark import client
from minisgl.benchmark.client import RequestResult, chat_url, make_prompt, one_request, run, wait_until_ready
from minisgl.benchmark.summary import format_summary, format_sweep, percentile, summarize

DONE = "data: [DONE]\n\n"


def chunk(content: str | None, **choice: Any) -> str:
    delta = {} if content is None else {"content": content}
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, **choice}]})}\n\n"


ANSWER = [chunk(""), chunk("ab"), chunk("é"), chunk("d"), chunk(None, finish_reason="stop"), DONE]


class Script(ThreadingHTTPServer):
    """Answers each chat request with the parts of a script, a short time apart."""

    request_queue_size = 256
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.parts: Sequence[str] = ANSWER
        self.status = 200
        self.health = [200]
        self.gap = 0.0
        self.bodies: list[dict[str, Any]] = []
        self.arrivals: list[float] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Script

    def do_GET(self) -> None:
        health = self.server.health
        self.send_response(health.pop(0) if len(health) > 1 else health[0])
        self.end_headers()

    def do_POST(self) -> None:
        self.server.arrivals.append(time.perf_counter())
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        self.end_headers()
        for part in self.server.parts:
            self.wfile.write(part.encode())
            self.wfile.flush()
            time.sleep(self.server.gap)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def script() -> Iterator[Script]:
    server = Script()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def ask(server: Script) -> RequestResult:
    async def main() -> RequestResult:
        async with httpx.AsyncClient() as http:
            return await one_request(http, chat_url(server.url), "Hi?", 3)

    return asyncio.run(main())


def test_a_request_is_as_documented(script: Script) -> None:
    script.gap = 0.02
    result = ask(script)
    assert script.bodies == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "Hi?"}],
            "max_tokens": 3,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
        }
    ]
    assert len(result.chunk_times) == 3
    assert result.output_chars == 4
    assert result.chunk_times == sorted(result.chunk_times)
    assert result.ttft == result.chunk_times[0]
    assert result.ttft >= 0.02  # the first chunk has no text
    assert result.latency >= result.chunk_times[-1]
    assert result.tpot == pytest.approx((result.chunk_times[2] - result.chunk_times[0]) / 2)


@pytest.mark.parametrize(
    ("status", "parts", "hint"),
    [
        (400, ['{"error": {"message": "too long"}}'], "answered 400.*too long"),
        (200, ANSWER[:-1], "broke off"),
        (200, [chunk("a"), 'data: {"error": {"message": "device lost"}}\n\n', DONE], "device lost"),
    ],
)
def test_a_failed_request_says_why(script: Script, status: int, parts: list[str], hint: str) -> None:
    script.status, script.parts = status, parts
    with pytest.raises(RuntimeError, match=hint):
        ask(script)


def test_odd_but_right_streams(script: Script) -> None:
    usage = f"data: {json.dumps({'choices': [], 'usage': {}})}\n\n"
    script.parts = [": ping\n\n", "data:" + chunk("x" * 200_000)[6:], "".join(ANSWER[1:4]), usage, DONE.strip()]
    result = ask(script)
    assert len(result.chunk_times) == 4
    assert result.output_chars == 200_004


def test_requests_come_by_deadlines_whatever_the_server_does(script: Script) -> None:
    script.gap = 0.1  # an answer takes 0.6 s, 120 times the mean gap
    results, seconds = asyncio.run(run(script.url, num_requests=40, rate=200.0, max_tokens=3, seed=5))
    assert len(results) == 40
    assert all(result.error is None for result in results)
    random = Random(5)
    for _ in range(41):
        make_prompt(random, 32)
    planned = sum(random.expovariate(200.0) for _ in range(39))
    sent = sorted(script.arrivals)[1:]  # the first is the warm-up
    assert sent[-1] - sent[0] > 0.5 * planned
    assert seconds > planned
    assert sent[-1] - sent[0] < 0.6 * 39  # they did not wait for one another


def test_a_seed_repeats_prompts_and_no_two_begin_alike(script: Script) -> None:
    for seed in (1, 1, 2):
        asyncio.run(run(script.url, num_requests=5, rate=math.inf, max_tokens=3, seed=seed, input_words=7))
    prompts = [body["messages"][0]["content"] for body in script.bodies]
    first, second, third = (set(prompts[i : i + 6]) for i in (0, 6, 12))
    assert first == second
    assert first.isdisjoint(third)
    assert len({prompt.split()[0] for prompt in prompts}) == 12
    assert {len(prompt.split()) for prompt in prompts} == {7}


def test_figures_are_numpys() -> None:
    random = Random(0)
    for n in (1, 2, 3, 10, 101):
        values = [random.random() for _ in range(n)]
        for percent in (0, 50, 90, 99, 100):
            assert percentile(values, percent) == pytest.approx(np.percentile(values, percent))
    assert math.isnan(percentile([], 50))


def result_of(*times: float, latency: float) -> RequestResult:
    return RequestResult(ttft=times[0], latency=latency, chunk_times=list(times))


def test_failures_are_counted_and_left_out_of_the_figures() -> None:
    results = [
        result_of(0.1, 0.2, 0.3, latency=0.4),
        result_of(0.3, 0.6, latency=0.8),
        result_of(0.5, latency=0.6),
        RequestResult(error="it broke"),
        RequestResult(error="it broke"),
        RequestResult(latency=0.1),
    ]
    s = summarize(results, rate=2.0, seconds=4.0)
    assert (s.completed, s.failed, s.chunks) == (3, 3, 6)
    assert s.failures == {"it broke": 2, "the answer has no text": 1}
    assert (s.ttft.mean, s.ttft.median) == pytest.approx((0.3, 0.3))
    assert (s.tpot.mean, s.tpot.median) == pytest.approx((0.2, 0.2))
    assert (s.e2e.mean, s.e2e.p99) == pytest.approx((0.6, np.percentile([0.4, 0.8, 0.6], 99)))
    text = format_summary(s)
    assert "3 requests completed, 3 failed" in text
    assert "failed 2 times: it broke" in text
    nothing = summarize(results[3:], rate=2.0, seconds=4.0)
    assert nothing.completed == 0
    assert nothing.as_dict()["ttft"] == {"mean": None, "median": None, "p99": None}
    assert "####" in format_sweep([s, nothing])


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/chat/completions"])
def test_forms_of_the_url(url: str) -> None:
    assert chat_url(url) == "http://h:1/v1/chat/completions"


def test_waiting_for_a_server(script: Script) -> None:
    script.health = [503, 503, 200]
    asyncio.run(wait_until_ready(script.url, 30))
    assert script.health == [200]
    script.health = [404]
    asyncio.run(wait_until_ready(script.url, 30))
    script.health = [503]
    with pytest.raises(RuntimeError, match=r"not ready after 0 s.*503"):
        asyncio.run(wait_until_ready(script.url, 0))


def test_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert client.main(["--url", url, "--ready-timeout", "0"]) == 1
    assert "not ready" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        (["--num-requests", "0"], "--num-requests must be at least 1"),
        (["--rate", "0"], "must be positive"),
        (["--rates", "1,-2"], "must be positive"),
        (["--rates", "1,x"], "--rates"),
        (["--plot", "a.txt"], "--plot must end in"),
    ],
)
def test_bad_flags(capsys: pytest.CaptureFixture[str], flags: list[str], hint: str) -> None:
    with pytest.raises(SystemExit):
        client.main(flags)
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(("module", "hint"), [("httpx", "httpx is missing"), ("matplotlib", "needs matplotlib")])
def test_missing_packages(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, module: str, hint: str
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(SystemExit):
        client.main(["--plot", "a.png"])
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_sweep_against_our_server(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str, tiny_server: Server
) -> None:
    plot = tmp_path / f"sweep{suffix}"
    command = f"--url {tiny_server.url} --num-requests 8 --rates 50,inf --max-tokens 6 --input-words 4 --plot {plot}"
    assert client.main(command.split()) == 0
    out = capsys.readouterr().out
    assert "Rate 50 req/s: 8 requests completed, 0 failed" in out
    assert "Rate inf req/s: 8 requests completed, 0 failed" in out
    assert "P99 TTFT ms" in out
    assert plot.read_bytes().startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")


def test_the_documented_command_line(capsys: pytest.CaptureFixture[str], tiny_server: Server) -> None:
    command = f"--num-requests 12 --rate 200 --max-tokens 5 --seed 3 --url {tiny_server.url} --json"
    assert client.main(command.split()) == 0
    (told,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (told["completed"], told["failures"], told["rate"]) == (12, {}, 200.0)
    assert 0 < told["ttft"]["median"] <= told["ttft"]["p99"] <= told["e2e"]["p99"]
