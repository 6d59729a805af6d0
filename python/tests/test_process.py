"""The engine inside a process: signals, fork, memory, exit. Each in a Python of its own.

A number in a test's name, here and in the other files, is that of the class of public bug reports that it comes from.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Start = Callable[[str], subprocess.Popen[str]]
Run = Callable[[str], str]


def test_a47_importing_loads_and_starts_nothing(run_python: Run) -> None:
    out = run_python("""
        import sys, threading
        import minisgl.llm, minisgl.core, minisgl.env
        loaded = [name for name in sys.modules if "_minisgl_native" in name or name == "torch"]
        print(loaded, threading.active_count())
    """)
    assert out == "[] 1\n"


INTERRUPTED = """
    import signal, time
    from minisgl.llm import LLM
    from minisgl.core import SamplingParams

    def idle(stats):
        unowned = stats["free_pages"] + stats["evictable_pages"]
        return stats["running"] + stats["waiting"] == 0 and unowned == stats["total_pages"]

    llm = LLM(TINY, dtype="float32", num_threads=1)
    want = llm.generate(["a"], SamplingParams(max_tokens=4))
    for _ in range(5):
        try:
            print("started", flush=True)
            llm.generate([[1, 2]] * 20000, SamplingParams(max_tokens=500, ignore_eos=True))
            print("not interrupted", flush=True)
        except KeyboardInterrupt:
            deadline = time.monotonic() + 30
            while not idle(llm.stats()) and time.monotonic() < deadline:  # they tell of the engine's last step
                time.sleep(0.01)
            print("idle" if idle(llm.stats()) else llm.stats(), flush=True)
    again = llm.generate(["a"], SamplingParams(max_tokens=4))
    print(again[0]["token_ids"] == want[0]["token_ids"])
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def test_a46_ctrl_c_interrupts_and_the_engine_stays_usable(python: Start) -> None:
    process = python(INTERRUPTED)
    assert process.stdout is not None
    for delay in (0.5, 0.2, 0.1, 0.05, 0.02):  # into generation, or into the call that starts it
        assert process.stdout.readline() == "started\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "idle\n"
    out, err = process.communicate(timeout=60)
    assert out == "True\nTrue\n", err
    assert process.returncode == 0


def test_a46_ctrl_c_while_a_thread_generates(python: Start) -> None:
    """The main thread gets the exception; the thread's call and the engine go on."""
    process = python("""
        import threading
        from minisgl.llm import LLM
        from minisgl.core import SamplingParams
        llm = LLM(TINY, dtype="float32", num_threads=1)
        long = SamplingParams(max_tokens=100, ignore_eos=True)
        counts = []
        def work():
            counts.extend(len(out["token_ids"]) for out in llm.generate([[1, 2]] * 100, long))
        thread = threading.Thread(target=work)
        thread.start()
        try:
            print("started", flush=True)
            threading.Event().wait()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        thread.join()
        print(set(counts), len(llm.generate(["a"], long)[0]["token_ids"]))
    """)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert out == "interrupted\n{100} 100\n", err
    assert process.returncode == 0


def test_a46_pythons_signals_and_children_work_beside_the_engine(run_python: Run) -> None:
    out = run_python("""
        import os, signal, subprocess, sys
        from minisgl.llm import LLM
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append("usr1"))
        with LLM(TINY, dtype="float32", num_threads=1):
            signal.signal(signal.SIGUSR2, lambda *_: seen.append("usr2"))
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR2)
            child = subprocess.run([sys.executable, "-c", "print(6 * 7)"], stdout=subprocess.PIPE)
            read, write = os.pipe()
            os.close(read)
            try:
                os.write(write, b"x")
            except BrokenPipeError:
                seen.append("pipe")
        print(seen, child.stdout)
    """)
    assert out == "['usr1', 'usr2', 'pipe'] b'42\\n'\n"


def test_a47_a_forked_child_is_refused_and_the_parent_unharmed(run_python: Run) -> None:
    out = run_python("""
        import os, sys
        from minisgl.llm import LLM
        from minisgl.core import SamplingParams
        llm = LLM(TINY, dtype="float32", num_threads=1)
        short = SamplingParams(max_tokens=4)
        want = llm.generate(["a"], short)[0]["token_ids"]
        child = os.fork()
        if child == 0:
            for use in (lambda: llm.generate(["a"]), lambda: LLM(TINY), llm.stats):
                try:
                    use()
                except RuntimeError as error:
                    assert "spawn" in str(error)
                else:
                    os._exit(1)
            llm.shutdown()
            sys.exit(7)  # with the usual clean-up
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(llm.generate(["a"], short)[0]["token_ids"] == want)
    """)
    assert out == "7\nTrue\n"


def test_a47_a_forked_pool_tells_what_to_do(run_python: Run) -> None:
    out = run_python("""
        import multiprocessing
        from minisgl.llm import LLM
        from minisgl.core import SamplingParams
        llm = LLM(TINY, dtype="float32", num_threads=1)

        def use(prompt):
            try:
                return llm.generate([prompt])
            except RuntimeError as error:
                return str(error)

        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(*set(pool.map(use, ["a", "b"])))
        print(len(llm.generate(["a"], SamplingParams(max_tokens=4, ignore_eos=True))[0]["token_ids"]))
    """)
    advice, count = out.splitlines()
    assert 'multiprocessing.get_context("spawn")' in advice
    assert count == "4"


def test_a47_a_child_forked_before_the_first_llm_works(run_python: Run) -> None:
    out = run_python("""
        import os
        from minisgl.llm import LLM
        child = os.fork()
        with LLM(TINY, dtype="float32", num_threads=1) as llm:
            n = len(llm.generate(["a"])[0]["token_ids"])
        if child:
            print(n > 0, os.waitpid(child, 0)[1])
    """)
    assert out == "True 0\n"


def test_a47_spawned_processes_work(tiny: str, tmp_path: Path) -> None:
    script = tmp_path / "pool.py"
    script.write_text(f"""
import multiprocessing
from minisgl.llm import LLM
from minisgl.core import SamplingParams

def work(n):
    with LLM({tiny!r}, dtype="float32", num_threads=1) as llm:
        out = llm.generate(["a"], SamplingParams(max_tokens=n, ignore_eos=True))
        return len(out[0]["token_ids"])

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(work, [3, 5]))
""")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "[3, 5]\n", done.stderr


@pytest.mark.parametrize("ending", ["pass", "sys.exit(0)", "del llm", "thread.start()"])
def test_a49_exit_without_shutdown(run_python: Run, ending: str) -> None:
    run_python(f"""
        import sys, threading
        from minisgl.llm import LLM
        from minisgl.core import SamplingParams
        llm = LLM(TINY, dtype="float32", num_threads=1)
        endless = SamplingParams(max_tokens=500, ignore_eos=True)
        thread = threading.Thread(target=llm.generate, args=([[1]] * 20000, endless), daemon=True)
        llm.generate(["a"], SamplingParams(max_tokens=4))
        {ending}
    """)


def test_exit_while_streams_run(run_python: Run) -> None:
    out = run_python("""
        import asyncio, sys, threading
        from minisgl.llm import LLM, AsyncLLM
        from minisgl.core import SamplingParams
        llm = LLM(TINY, dtype="float32", device="ref", num_threads=1)
        endless = SamplingParams(max_tokens=500, ignore_eos=True)
        streams = [llm.stream([1], endless) for _ in range(32)]
        started = threading.Event()

        async def main():
            async for _ in AsyncLLM(llm).stream([1], endless):
                started.set()

        threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
        next(streams[0])
        started.wait()
        print("leaving")
    """)
    assert out == "leaving\n"


RESIDENT = """
    import gc
    from minisgl.llm import LLM
    from minisgl.core import SamplingParams

    def resident_mib():
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096 / 2**20

    def grows(action, times):
        for _ in range(times):
            action()
        before = resident_mib()
        for _ in range(times):
            action()
        return resident_mib() - before
"""


OTHER_GO_LIBRARY = """
package main

import "C"

import "runtime"

//export Churn
func Churn(times int) int {
	sums := make(chan int)
	for i := range times {
		go func() { sums <- len(make([]byte, 1<<16)) * i }()
	}
	sum := 0
	for range times {
		sum += <-sums
	}
	runtime.GC()
	return sum >> 16
}

func main() {}
"""


@pytest.mark.parametrize("first", ["minisgl", "other"])
def test_a48_another_go_library_in_the_process(run_python: Run, tmp_path: Path, first: str) -> None:
    (tmp_path / "other.go").write_text(OTHER_GO_LIBRARY)
    library = tmp_path / "other.so"
    subprocess.run(["go", "build", "-buildmode=c-shared", "-o", library, "other.go"], cwd=tmp_path, check=True)
    out = run_python(f"""
        import ctypes, threading
        from minisgl.llm import LLM
        from minisgl.core import SamplingParams
        params = SamplingParams(max_tokens=50, ignore_eos=True)
        loads = {{
            "minisgl": lambda: LLM(TINY, dtype="float32", num_threads=2),
            "other": lambda: ctypes.CDLL({str(library)!r}),
        }}
        loaded = {{name: loads[name]() for name in sorted(loads, reverse={first == "other"})}}
        llm, other = loaded["minisgl"], loaded["other"]
        want = llm.generate([[1, 2]] * 8, params)[0]["token_ids"]
        churned = []
        thread = threading.Thread(target=lambda: churned.extend(other.Churn(100) for _ in range(200)))
        thread.start()
        got = [out["token_ids"] for out in llm.generate([[1, 2]] * 64, params)]
        thread.join()
        print(set(churned), got == [want] * 64)
    """)
    assert out == "{4950} True\n"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a48_short_calls_leave_no_memory_behind(python: Start) -> None:
    calls = int(os.environ.get("MINISGL_SHORT_CALLS", "2000"))  # make soak has more
    process = python(
        RESIDENT
        + f"""
    llm = LLM(TINY, dtype="float32", num_threads=1)
    short = SamplingParams(max_tokens=2)
    levels = []
    for _ in range(10):
        for _ in range({calls} // 10):
            llm.generate(["a b c", [1, 2]], short)
        levels.append(resident_mib())
    print(*(f"{{level:.1f}}" for level in levels))
    """
    )
    out, err = process.communicate(timeout=60 + calls / 20)
    assert process.returncode == 0, err
    print(f"MiB after each tenth of {calls} calls: {out}")
    levels = [float(level) for level in out.split()]
    assert max(levels[5:]) - max(levels[:5]) < 8


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_streams_leave_no_memory_behind(run_python: Run) -> None:
    out = run_python(
        RESIDENT
        + """
    import asyncio
    from minisgl.llm import AsyncLLM
    llm = LLM(TINY, dtype="float32", num_threads=1)
    params = SamplingParams(max_tokens=20, ignore_eos=True)

    async def read(stream, steps):
        async for _ in stream:
            if (steps := steps - 1) == 0:
                return

    async def many():
        allm = AsyncLLM(llm)
        await asyncio.gather(*(read(allm.stream([i], params), 1 + i % 25) for i in range(100)))
        await allm.generate(["a", "b"], params)

    def use():
        asyncio.run(many())
        for i in range(20):
            for step in llm.stream([i], params):
                if step.completion_tokens > i:
                    break
    print(grows(use, 10))
    """
    )
    assert float(out) < 8


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a49_engines_leave_no_memory_behind(run_python: Run) -> None:
    out = run_python(
        RESIDENT
        + """
    def use():
        llm = LLM(TINY, dtype="float32", num_threads=1, num_page_override=65536)
        llm.generate(["a"], SamplingParams(max_tokens=2))
        del llm
    print(grows(use, 10))
    """
    )
    assert float(out) < 32
