#!/usr/bin/env bash
# Builds the program minisgl-bench into the Python package, where a wheel takes it
# from (minisgl.benchmark.programs runs it).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p python/minisgl/_native
echo "bench: building minisgl-bench"
go build -ldflags='-s -w' -o python/minisgl/_native/minisgl-bench ./bench/minisgl-bench
