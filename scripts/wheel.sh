#!/usr/bin/env bash
# Builds the wheel as users do, with pip and an isolated build, and proves it: in
# an empty environment away from the repository it generates, measures, serves.
#
#   PYTHON   the interpreter to build for (default: python3); 3.10 or newer
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}
wheels=$root/build/wheels
model=smollm2-135m

work=$(mktemp -d "${TMPDIR:-/tmp}/minisgl-wheel.XXXXXX")
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

"$python" -m venv "$work/venv"
pip() { "$work/venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }

echo "wheel: building"
rm -rf "$wheels"
pip wheel --no-deps --wheel-dir "$wheels" "$root"
pip install "$wheels"/*.whl httpx
cd "$work"
export PATH="$work/venv/bin:$PATH"
unset PYTHONPATH

echo "wheel: generating"
python - "$model" <<'PYTHON'
import sys

import minisgl
from minisgl.core import SamplingParams
from minisgl.llm import LLM

assert minisgl.__file__.startswith(sys.prefix), minisgl.__file__
with LLM(sys.argv[1]) as llm:
    (out,) = llm.chat([{"role": "user", "content": "What is the capital of France?"}], SamplingParams(max_tokens=16))
assert "Paris" in out["text"], out
print(out["text"])
PYTHON

echo "wheel: measuring"
python -m minisgl.benchmark.offline --model "$model" --num-seqs 6 --max-input-len 40 --max-output-len 16

echo "wheel: serving"
port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
minisgl serve --model "$model" --port "$port" --log-level error &
server=$!
python -m minisgl.benchmark.client --url "http://127.0.0.1:$port" --num-requests 8 --rate 8 --max-tokens 8
minisgl-bench client --url "http://127.0.0.1:$port" --num-requests 8 --rate 8 --max-tokens 8
kill "$server"
wait "$server"
server=
echo "wheel: $(ls "$wheels") is good"
