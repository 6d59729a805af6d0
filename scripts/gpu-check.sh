#!/usr/bin/env bash
# Proves and measures the CUDA device on a machine that has a GPU, in at most five
# minutes. Such a machine needs nothing but the driver: what runs there is packed here.
#
#   scripts/gpu-check.sh pack          puts programs, tiny models and this script into build/gpu-check
#   build/gpu-check/gpu-check.sh run   there: op tests against the reference device (also under
#                                      compute-sanitizer, if there is one), tokens equal to the CPU's and
#                                      under every option, speed of a Qwen3-0.6B with random weights;
#                                      the same with FlashInfer's attention, if its library was packed
#
# What is proven comes first. Whatever a step prints goes to OUT/STEP.txt as well.
#
#   OUT         where to (default: build/gpu-check/out)
#   BANDWIDTH   GB/s that the GPU's memory can give by its data sheet (default: 4800, an H200's)
#   DEVICE, PROGRAM, BENCH, TESTS   other than cuda and the packed programs, to try the script without
#                                   a GPU; REQUESTS, LENGTH: of the workload, likewise (256, 1024)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

pack() {
  local root=$here/.. to=$here/../build/gpu-check
  rm -rf "$to"
  mkdir -p "$to/models"
  cp "$root/bin/minisgl-cuda" "$here/gpu-check.sh" "$to/"
  "$here/cuda.sh" go build -tags cuda -o "$(realpath "$to")/minisgl-bench-cuda" ./minisgl-bench-cuda
  "$here/cuda.sh" go test -tags cuda -c -o "$(realpath "$to")/device.test" ./machine
  [ ! -f "$root/bin/libmsgl_flashinfer.so" ] || cp "$root/bin/libmsgl_flashinfer.so" "$to/" # make flashinfer
  for model in llama-tied qwen3-headdim128 qwen3moe-every-layer gemma3-tied phi3; do
    cp -rL "$root/go/internal/model/testdata/tiny/$model" "$to/models/"
  done
  "${PYTHON:-python3}" "$here/qwen3_shape.py" --no-weights "$to/models/qwen3"
  echo "gpu-check: packed $(du -sh "$to" | cut -f1) into $(realpath "$to")"
}

# Runs a step under a limit of its own, in seconds.
step() {
  local name=$1 limit=$2 began=$SECONDS
  shift 2
  echo "== $name"
  if timeout -k 5 "$limit" "$@" 2>&1 | tee "$out/$name.txt"; then
    echo "== $name: ok, $((SECONDS - began)) s"
  else
    echo "== $name: FAILED after $((SECONDS - began)) s of at most $limit"
    failed=1
  fi
}

# All operations but the largest under the sanitizer of memory.
sanitize() {
  local tool
  tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || {
    echo "there is no compute-sanitizer"
    return 0
  }
  "$tool" --error-exitcode 1 "$tests" -test.run 'TestDevice/(embed|rms_norm|act_mul|gather_rows|rope|attention|sample|logits)$' -test.failfast
}

tokens() {
  local model=$1
  shift
  "$program" generate --model "models/$model" --dtype float32 --max-tokens 64 --num-pages 256 "$@" "The capital of France is"
}

# Each tiny model's tokens are the CPU's, in pages of two sizes, with graphs and without.
same_tokens() {
  for model in models/*/expected.json; do
    model=$(basename "$(dirname "$model")")
    tokens "$model" --device cpu >"$out/cpu.txt"
    tokens "$model" --device "$device" >"$out/gpu.txt"
    diff "$out/cpu.txt" "$out/gpu.txt"
    tokens "$model" --device "$device" --page-size 16 --cuda-graph-max-bs 0 >"$out/gpu.txt"
    diff "$out/cpu.txt" "$out/gpu.txt"
    echo "$model: equal tokens"
  done
}

# The tool ends with an error if an option changes a token.
metamorphic() {
  for model in llama-tied qwen3moe-every-layer; do
    "$bench" ablation --model "models/$model" --device "$device" --num-pages 2048 --requests 16 --input 40 --shared 16 --output 24 \
      --rounds 1 --chunk-sizes 8,64 --page-sizes 4,16 --max-running 1,5
  done
}

# The workload of mini-sglang's and nano-vllm's benchmark.
workload() {
  "$bench" offline --model models/qwen3 --dummy-weight --device "$device" --page-size 256 --cuda-graph-max-bs 256 --memory-bandwidth "$bandwidth" \
    --dataset-name mini --num-prompts "$requests" --random-input-len "$length" --random-output-len "$length" --seed 0 --quiet
}

steps_of_decoding() {
  for types in "" "--quantization fp8 --kv-cache-dtype fp8"; do
    [ -z "$types" ] || [ "$device" = cuda ] || continue
    # shellcheck disable=SC2086
    "$program" bench --model models/qwen3 --dummy-weight --device "$device" --page-size 256 --cases "$length,1x32+64,64x$((length / 2))+64" --repeat 1 $types
  done
}

options() {
  "$bench" ablation --model models/qwen3 --dummy-weight --device "$device" --page-size 256 --what overlap,cuda-graph,page-size,chunk-size --rounds 1 \
    --requests "$((requests / 2))" --input "$((length / 2))" --shared 1 --output "$((length / 4))" --page-sizes 16,64 --chunk-sizes 1024,4096
}

# With FlashInfer's attention an option changes no token, either; and its speed, beside that of the step decode.
flashinfer() {
  [ -f libmsgl_flashinfer.so ] || [ "$device" != cuda ] || {
    echo "there is no libmsgl_flashinfer.so: make flashinfer before make gpu-check"
    return 0
  }
  "$bench" ablation --model models/qwen3-headdim128 --device "$device" --dtype bfloat16 --attention-backend fi --num-pages 2048 \
    --requests 16 --input 40 --shared 16 --output 24 --rounds 1 --chunk-sizes 8,64 --page-sizes 4,16 --max-running 1,5
  "$program" bench --model models/qwen3 --dummy-weight --device "$device" --attention-backend fi --page-size 256 \
    --cases "$length,1x32+64,64x$((length / 2))+64" --repeat 1
}

# For shells that timeout starts.
export -f sanitize tokens same_tokens metamorphic workload steps_of_decoding options flashinfer

run() {
  cd "$here"
  export out=${OUT:-$here/out} device=${DEVICE:-cuda} program=${PROGRAM:-./minisgl-cuda} bench=${BENCH:-./minisgl-bench-cuda} tests=${TESTS:-./device.test}
  export bandwidth=${BANDWIDTH:-4800} requests=${REQUESTS:-256} length=${LENGTH:-1024}
  failed=0
  mkdir -p "$out"
  [ "$device" != cuda ] || step gpu 10 nvidia-smi
  step ops 60 "$tests" -test.failfast
  step tokens 35 bash -c 'set -e; same_tokens'
  step metamorphic 35 bash -c 'set -e; metamorphic'
  step workload 45 bash -c workload
  step decode 30 bash -c steps_of_decoding
  step options 35 bash -c options
  step flashinfer 30 bash -c 'set -e; flashinfer'
  step sanitizer 20 bash -c sanitize
  echo "== all: $SECONDS s"
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
