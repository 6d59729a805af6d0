#!/usr/bin/env bash
# Runs every fuzz target of the Go modules for a time each: fuzz.sh 20s
set -euo pipefail
time=${1:?usage: fuzz.sh DURATION, such as 20s}
cd "$(dirname "$0")/.."
grep -rlE '^func Fuzz' --include='*_test.go' go bench | sort | while read -r file; do
  dir=$(dirname "$file")
  grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | awk '{print $2}' | while read -r target; do
    echo "fuzz: $target in $dir"
    go test -race "./$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x
  done
done
