#!/usr/bin/env bash
# Builds wheels as users do, with pip and an isolated build, and proves them: in
# an empty environment away from the repository each generates, measures, serves.
#
#   scripts/wheel.sh [PYTHON...]   interpreters to build for, or "all": each of
#                                  3.10 to 3.13 that is on PATH or among pyenv's
#                                  (default: $PYTHON, else python3)
#   MINISGL_CUDA=1                 with the module for GPUs, which needs none to be built and loaded
#
# The wheels are in build/wheels afterwards.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
wheels=$root/build/wheels
model=smollm2-135m

# found prints an interpreter for each version that this machine has.
found() {
  local minor python
  for minor in 10 11 12 13; do
    for python in "python3.$minor" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$minor".*/bin/python; do
      # pyenv has a python3.12 on PATH that fails while another version is set.
      if "$python" -c '' 2>/dev/null; then
        echo "$python"
        break
      fi
    done
  done
}

# generate answers a question, and wants to be served by a module of the wheel's.
generate() {
  python - "$model" "$1" <<'PYTHON'
import sys

import minisgl
from minisgl.core import SamplingParams
from minisgl.llm import LLM

model, module = sys.argv[1:]
assert minisgl.__file__.startswith(sys.prefix), minisgl.__file__
with LLM(model) as llm:
    (out,) = llm.chat([{"role": "user", "content": "What is the capital of France? Answer in one sentence."}], SamplingParams(max_tokens=16))
assert "Paris" in out["text"], out
loaded = [name for name in sys.modules if name.startswith("minisgl._native._")]
assert loaded == [f"minisgl._native.{module}"], loaded
print(out["text"])
PYTHON
}

# check builds, installs and tries the wheel of one interpreter.
check() (
  python=$1
  work=$(mktemp -d "${TMPDIR:-/tmp}/minisgl-wheel.XXXXXX")
  server=
  trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
  "$python" -m venv "$work/venv"
  pip() { "$work/venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }

  echo "wheel: building with $("$python" -V)"
  pip wheel --no-deps --wheel-dir "$work" "$root"
  pip install "$work"/*.whl httpx
  mv "$work"/*.whl "$wheels"
  cd "$work"
  export PATH="$work/venv/bin:$PATH"
  unset PYTHONPATH

  echo "wheel: generating"
  generate _minisgl_native
  if [ -n "${MINISGL_CUDA:-}" ]; then
    echo "wheel: generating with the module for GPUs, on the CPU, where a driver says that there is a GPU"
    LD_LIBRARY_PATH=$root/build/cuda/stub MSGL_STUB_GPUS=1 generate _minisgl_native_cuda
  fi

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
)

pythons=("$@")
[ $# -gt 0 ] || pythons=("${PYTHON:-python3}")
[ "${pythons[*]}" != all ] || mapfile -t pythons < <(found)
rm -rf "$wheels"
mkdir -p "$wheels"
for python in "${pythons[@]}"; do
  check "$python"
  echo "wheel: good with $("$python" -V)"
done
ls "$wheels"
