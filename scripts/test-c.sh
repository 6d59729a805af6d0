#!/usr/bin/env bash
# Tests the CPU kernels under the address and undefined-behaviour sanitizers. Compiling them so takes
# minutes, so their objects are kept in the user's cache, for as long as the source stays as it is.
#
#   MINISGL_CACHE   cache directory (default: $XDG_CACHE_HOME/minisgl or ~/.cache/minisgl)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
kept=${MINISGL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/minisgl}/kernels-asan
source=$(cd "$root/kernels" && { cat cpu/*.c cpu/*.h test/Makefile test/amx_emulated.h; "${CC:-cc}" --version; } | sha256sum | cut -c1-16)

mkdir -p "$kept/$source"
find "$kept" -mindepth 1 -maxdepth 1 ! -name "$source" -mtime +1 -exec rm -rf {} +
# A clone's files are newer than objects of the same source.
find "$kept/$source" -name '*.o' -exec touch {} +
exec make --no-print-directory -j"$(getconf _NPROCESSORS_ONLN)" -C "$root/kernels/test" BUILD="$kept/$source" asan
