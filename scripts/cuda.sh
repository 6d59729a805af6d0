#!/usr/bin/env bash
# Compiles the CUDA kernels with nvcc for all GPUs that are supported, into
# build/lib/libmsgl_cuda.a, prints what each kernel takes, and builds bin/minisgl-cuda and the
# Python module for GPUs.
# Needs no GPU. A kernel whose registers spill to memory is an error, as is any warning.
#
# nvcc is that of CUDA_HOME, or of the PATH, or else comes with its parts from
# PyPI by pip (130 MB once, kept in the user's cache).
#
#   scripts/cuda.sh build     fails where there is no nvcc
#   scripts/cuda.sh check     there says so and ends well; looks through the Go code, too, instead of building for Python
#   scripts/cuda.sh flashinfer   builds FlashInfer's attention (kernels/cuda/flashinfer) into a library of its own, for
#                             --attention-backend fi, and puts it beside the programs and the Python module. Its
#                             headers come from PyPI (100 MB once, of which 7 are kept)
#   scripts/cuda.sh go ARGS   runs go in go/cmd/minisgl-cuda with what a build with the tag cuda
#                             needs: the driver's header, and a library to link with in its place
#
#   CUDA_HOME       a CUDA toolkit
#   MINISGL_CACHE   cache directory (default: $XDG_CACHE_HOME/minisgl or ~/.cache/minisgl)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mode=${1:-build}
python=$root/.venv/bin/python
[ -x "$python" ] || python=${PYTHON:-python3}  # pip builds a wheel
cache=${MINISGL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/minisgl}
version=13.5.37
wheels="nvidia-cuda-nvcc==$version nvidia-cuda-crt==$version nvidia-nvvm==$version nvidia-cuda-runtime==$version nvidia-cuda-cccl==13.3.5.0.6"
flashinfer_version=0.7.4
headers_version=12.9.79  # gorgonia.org/cu does not compile with CUDA 13's
objects=$root/build/cuda
library=$root/build/lib/libmsgl_cuda.a
shared=$root/build/lib/shared/libmsgl_cuda.so
flashinfer=$root/build/lib/shared/libmsgl_flashinfer.so

# Compute capabilities 8.0, 9.0 and 10.0; others of 8.0 and newer translate 8.0's PTX when it is loaded.
targets="-gencode arch=compute_80,code=[sm_80,compute_80] -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_100,code=sm_100"
# Multiply-adds are explicit in the source, so that the emulation rounds as the GPU does.
flags="-std=c++17 -O3 -fmad=false -Werror all-warnings -Xptxas -v,-warn-spills -Xcompiler -fPIC,-Wall,-Wextra"

say() { printf 'cuda: %s\n' "$*"; }

# Without nvcc: an error, or in a check a remark.
without() {
  say "$*"
  [ "$mode" = check ] || exit 1
  say "THE KERNELS WERE NOT COMPILED WITH NVCC, only the emulation was tested"
  exit 0
}

# Fetches wheels from PyPI, of which folder $2 becomes $1 in the cache, with the licence where it is a file
# of that name. They are unpacked elsewhere first: what is in the cache is whole.
fetch() {
  local dest=$1 part=$2 work
  shift 2
  [ ! -d "$dest" ] || return 0
  say "fetching $* from PyPI (once)" >&2
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/cuda.XXXXXX")
  if ! "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$@" >&2; then
    rm -rf "$work"
    return 1
  fi
  for wheel in "$work"/*.whl; do "$python" -m zipfile -e "$wheel" "$work/tree"; done
  find "$work/tree" -path '*/bin/*' -type f -exec chmod +x {} +
  find "$work/tree" -path '*.dist-info/licenses/LICENSE' -exec cp {} "$work/tree/$part" ';'
  mv -T "$work/tree/$part" "$dest"
  rm -rf "$work"
}

find_nvcc() {
  if [ -n "${CUDA_HOME:-}" ]; then
    echo "$CUDA_HOME/bin/nvcc"
  elif ! command -v nvcc; then
    # shellcheck disable=SC2086
    fetch "$cache/cuda-$version" nvidia/cu13 $wheels && echo "$cache/cuda-$version/bin/nvcc"
  fi
}

# Makes build/cuda/stub/libcuda.so, to link with where there is no driver: the functions that
# cuda.h declares, which fail, under the driver's name. With MSGL_STUB_GPUS=N it says that it
# has started, with N GPUs: then what is for GPUs is loaded, if it comes before a driver.
make_stub() {
  local header=$1/cuda.h dir=$objects/stub
  [ "$dir/libcuda.so" -ot "$header" ] || [ "$dir/libcuda.so" -ot "$0" ] || return 0
  mkdir -p "$dir"
  {
    printf '#include <stdlib.h>\nstatic const char *gpus(void) { return getenv("MSGL_STUB_GPUS"); }\n'
    printf 'int cuInit(unsigned flags) { return gpus() ? (int)flags : 999; }\n'
    printf 'int cuDeviceGetCount(int *count) { return gpus() ? *count = atoi(gpus()), 0 : 999; }\n'
    cc -E -P "$header" | grep -o '\bcu[A-Z][A-Za-z0-9_]*(' | sort -u | sed '/^cu\(Init\|DeviceGetCount\)(/d; s/(/(void) { return 999; }/; s/^/int /'
  } >"$dir/stub.c"
  cc -shared -fPIC -w -Wl,-soname,libcuda.so.1 -o "$dir/libcuda.so" "$dir/stub.c"
  ln -sf libcuda.so "$dir/libcuda.so.1"
}

# Runs a command that builds with a driver's header and library, whether there is a driver or not.
with_driver() {
  fetch "$cache/cuda-$headers_version" nvidia/cuda_runtime "nvidia-cuda-runtime-cu12==$headers_version" || {
    say "CUDA $headers_version's cuda.h could not be fetched from PyPI" >&2
    exit 1
  }
  make_stub "$cache/cuda-$headers_version/include"
  # Not CGO_CFLAGS: Go would compile all C again.
  C_INCLUDE_PATH="$cache/cuda-$headers_version/include" LIBRARY_PATH="$objects/stub" "$@"
}

run_go() (
  cd "$root/go/cmd/minisgl-cuda"
  GOWORK=off with_driver go "$@"
)

mkdir -p "$objects" "$root/build/lib" "$root/bin"
if [ "$mode" = go ]; then
  shift
  run_go "$@"
  exit
fi

# Prints a file and all that it includes of ours.
sources() {
  local before="" now=$1
  cd "$root/kernels/cuda"
  while [ "$before" != "$now" ]; do
    before=$now
    # shellcheck disable=SC2086
    now=$( (printf '%s\n' $now && sed -n 's/^#include "\(.*\)"/\1/p' $now) | sort -u | xargs)
  done
  # shellcheck disable=SC2086
  cat $now
}

# Compiles one file, unless that was done from the same sources, here or in another clone; keeps what
# ptxas says of it.
compile() {
  local name=$1 kept
  kept=$kept_objects/$name-$( (echo "$common" && sources "$name.cu") | sha256sum | cut -c1-32)
  if [ ! -f "$kept.o" ]; then
    # shellcheck disable=SC2086
    if ! "$nvcc" $flags $targets -c "$root/kernels/cuda/$name.cu" -o "$kept.$$.o" >"$kept.log" 2>&1; then
      grep -v '^ptxas info' "$kept.log" >&2
      say "nvcc failed on $name.cu" >&2
      return 1
    fi
    mv "$kept.$$.o" "$kept.o"
  fi
  touch "$kept.o" "$kept.log"
  cp "$kept.o" "$objects/$name.o"
  cp "$kept.log" "$objects/$name.log"
}

# Compiles FlashInfer's kernel for heads and caches "D DTYPE" likewise. It is not ours: multiply-adds may be
# fused, and registers spilled.
compile_flashinfer() {
  local d=$1 dtype=$2 name=attention-$1-$2 from=$root/kernels/cuda/flashinfer stamp
  stamp=$( (echo "$common $foreign_flags $headers" && cat "$from/attention.cu" "$from/attend.h" "$from/../msgl_fi.h") | sha256sum)
  [ "$(cat "$objects/flashinfer/$name.stamp" 2>/dev/null)" != "$stamp" ] || return 0
  # shellcheck disable=SC2086
  if ! "$nvcc" $foreign_flags $targets -isystem "$headers" -DMSGL_FI_D="$d" -DMSGL_FI_DTYPE="$dtype" -c "$from/attention.cu" \
    -o "$objects/flashinfer/$name.o" >"$objects/flashinfer/$name.log" 2>&1; then
    grep -v '^ptxas info' "$objects/flashinfer/$name.log" >&2
    say "nvcc failed on flashinfer/attention.cu for heads of $d" >&2
    return 1
  fi
  echo "$stamp" >"$objects/flashinfer/$name.stamp"
}

build_flashinfer() {
  headers=$cache/flashinfer-$flashinfer_version
  foreign_flags="-std=c++17 -O3 -Werror all-warnings -Xptxas -v -Xcompiler -fPIC,-Wall,-Wextra"
  fetch "$headers" flashinfer/data/include "flashinfer-python==$flashinfer_version" || without "FlashInfer $flashinfer_version could not be fetched from PyPI"
  mkdir -p "$objects/flashinfer" "$(dirname "$flashinfer")"
  say "compiling FlashInfer $flashinfer_version's attention"
  export headers foreign_flags
  export -f compile_flashinfer
  # Types as in msgl_dtype.
  printf '%s\n' {256,128,64}\ {1,8} | xargs -P "$(nproc)" -I {} bash -c 'set -euo pipefail; compile_flashinfer {}'
  link_runtime
  # The CUDA runtime in it is its own: nobody else's functions may take the place of its.
  c++ -std=c++17 -O2 -fPIC -shared -Wall -Wextra -Werror -Wl,--exclude-libs,ALL -o "$flashinfer" "$root/kernels/cuda/flashinfer/library.cc" \
    "$objects"/flashinfer/*.o -L"$root/build/lib" -lcudart_static -lpthread -ldl -lrt
  install "$flashinfer" "$root/bin/"
  install "$flashinfer" "$root/python/minisgl/_native/"
  for log in "$objects"/flashinfer/*.log; do
    say "$(basename "$log" .log): $(grep -o "sm_[0-9a-z]*'$\|Used [0-9]* registers\|[0-9]* bytes spill stores" "$log" | tr -d "'" | xargs)"
  done
  say "FlashInfer's attention is in $(du -h "$flashinfer" | cut -f1): $flashinfer"
}

link_runtime() {
  for dir in "$(dirname "$nvcc")"/../{lib64,lib,targets/x86_64-linux/lib}; do
    [ ! -f "$dir/libcudart_static.a" ] || ln -sf "$(realpath "$dir/libcudart_static.a")" "$root/build/lib/"
  done
}

# A line for each kernel and target: registers, shared memory of fixed size, spilled bytes.
report() {
  cat "$objects"/*.log | c++filt | awk '
    /Compiling entry function/ { match($0, /msgl::[^'"'"']*/); name = substr($0, RSTART, RLENGTH)
      gsub(/msgl::|\(anonymous namespace\)::|void /, "", name); sub(/\(.*/, "", name); target = $NF; gsub(/'"'"'/, "", target) }
    /spill stores/ { spilled = $5 + $9 }
    /Used [0-9]+ registers/ { shared = 0; if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART, RLENGTH) + 0
      for (i = 1; i < NF; i++) if ($i == "Used") registers = $(i + 1)
      printf "%-44s %-8s %9d %9d %8d\n", name, target, registers, shared, spilled }' | sort
}

nvcc=$(find_nvcc) || without "there is no nvcc: CUDA_HOME is not set, the PATH has none, and PyPI could not be reached"
[ -x "$nvcc" ] || without "$nvcc is not there"
common="$flags $targets $("$nvcc" --version)"
say "compiling with $("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/nvcc \1/p') for sm_80, sm_90a, sm_100"
kept_objects=$cache/cuda-objects
mkdir -p "$kept_objects"
find "$kept_objects" -type f -mtime +30 -delete
export nvcc flags targets objects kept_objects root common
export -f compile sources say
if [ "$mode" = flashinfer ]; then
  build_flashinfer
  exit
fi
names=$(cd "$root/kernels/cuda" && ls -- *.cu | sed 's/\.cu$//')
echo "$names" | xargs -P "$(nproc)" -I {} bash -c 'set -euo pipefail; compile {}'

rm -f "$library"
(cd "$objects" && ar rcs "$library" $(printf '%s.o ' $names))
link_runtime
report >"$objects/report.txt"
printf '%-44s %-8s %9s %9s %8s\n' kernel target registers shared spilled
cat "$objects/report.txt"
spills=$(awk '$NF > 0' "$objects/report.txt")
[ -z "$spills" ] || {
  say "these kernels spill registers: $spills" >&2
  exit 1
}
say "$(wc -l <"$objects/report.txt") kernels in $(du -h "$library" | cut -f1); none spills"

say "building bin/minisgl-cuda"
run_go build -tags cuda -o "$root/bin/minisgl-cuda" .
if [ "$mode" = check ]; then
  run_go vet -tags cuda . ./machine ./minisgl-bench-cuda ./native github.com/minisgl/minisgl/go/internal/device/cuda github.com/minisgl/minisgl/kernels/cuda
else
  mkdir -p "$(dirname "$shared")"
  cc -shared -o "$shared" -Wl,--whole-archive "$library" -Wl,--no-whole-archive -L"$root/build/lib" -lcudart_static -lstdc++ -lpthread -ldl -lrt
  with_driver "$root/scripts/native.sh" cuda
  install "$shared" "$root/python/minisgl/_native/"  # a new file: a running Python may have the old one mapped
fi
