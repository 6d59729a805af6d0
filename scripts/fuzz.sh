#!/usr/bin/env bash
# Runs every fuzz target of the Go modules under the race detector; they share the time: fuzz.sh 10m
set -euo pipefail
total=${1:?usage: fuzz.sh DURATION, such as 90s, 10m or 2h}
cd "$(dirname "$0")/.."
case $total in
  *h) seconds=$((${total%h} * 3600)) ;;
  *m) seconds=$((${total%m} * 60)) ;;
  *s) seconds=${total%s} ;;
  *) echo "fuzz: $total is not a duration, such as 90s, 10m or 2h" >&2; exit 2 ;;
esac
targets=$(grep -rE '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' -o go bench | sed 's/:func /\t/' | sort)
each=$((seconds / $(wc -l <<<"$targets")))
[ "$each" -ge 1 ] || each=1
while IFS=$'\t' read -r file target; do
  echo "fuzz: $target in $(dirname "$file"), ${each} s"
  go test -race "./$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "${each}s" -fuzzminimizetime 1x
done <<<"$targets"
