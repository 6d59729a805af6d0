#!/usr/bin/env bash
# Proves and measures the CUDA device on a machine that has a GPU, in under five
# minutes. Such a machine needs nothing but the driver: what runs there is packed here.
#
#   scripts/gpu-check.sh pack          puts binaries, a tiny model and this script into build/gpu-check
#   build/gpu-check/gpu-check.sh run   there: op tests against the reference device, tokens
#                                      equal to the CPU's, speed of a Qwen3-0.6B with random weights
#
# Whatever a step prints goes to OUT/STEP.txt as well (default: build/gpu-check/out).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

pack() {
  local root=$here/.. to=$here/../build/gpu-check
  rm -rf "$to"
  mkdir -p "$to/models"
  cp "$root/bin/minisgl-cuda" "$here/gpu-check.sh" "$to/"
  "$here/cuda.sh" go test -tags cuda -c -o "$(realpath "$to")/device.test" .
  cp -r "$root/go/internal/model/testdata/tiny/llama-tied" "$to/models/tiny"
  "${PYTHON:-python3}" "$here/qwen3_shape.py" --no-weights "$to/models/qwen3"
  echo "gpu-check: packed $(du -sh "$to" | cut -f1) into $(realpath "$to")"
}

# Runs a step under a limit of its own, in seconds.
step() {
  local name=$1 limit=$2
  shift 2
  echo "== $name"
  if timeout "$limit" "$@" 2>&1 | tee "$out/$name.txt"; then
    echo "== $name: ok"
  else
    echo "== $name: FAILED"
    failed=1
  fi
}

tokens() { ./minisgl-cuda generate --model models/tiny --dtype float32 --device "$1" --max-tokens 64 --num-pages 64 "The capital of France is"; }

same_tokens() {
  tokens cpu >"$out/cpu.txt"
  tokens cuda >"$out/cuda.txt"
  diff "$out/cpu.txt" "$out/cuda.txt"
}

run() {
  cd "$here"
  out=${OUT:-$here/out}
  failed=0
  mkdir -p "$out"
  step gpu 20 nvidia-smi
  step ops 120 ./device.test -test.failfast
  step tokens 60 same_tokens
  step speed 90 ./minisgl-cuda bench --model models/qwen3 --dummy-weight --device cuda --cases 1x32+64,64x512+128,256x512+128 --repeat 1
  exit $failed
}

case ${1:-} in
  pack) pack ;;
  run) run ;;
  *)
    sed -n '2,/^set/p' "${BASH_SOURCE[0]}" | grep '^#' | sed 's/^# \{0,1\}//'
    exit 2
    ;;
esac
