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

# Go's fuzzer sometimes reports its own time limit as a failure ("context deadline exceeded"): a finding is what names
# its failing input or its panic, so only a failure that consists of that line and nothing else is none.
fuzz() {
  local log
  log=$(mktemp)
  if ! go test -race "$1" -run '^$' -fuzz "^$2\$" -fuzztime "${each}s" -fuzzminimizetime 1x 2>&1 | tee "$log"; then
    if ! grep -A1 -- "--- FAIL: $2" "$log" | grep -qE '^ +context deadline exceeded$' || grep -qE 'Failing input|panic:|DATA RACE' "$log"; then
      rm -f "$log"
      return 1
    fi
    echo "fuzz: $2 ended at its time limit"
  fi
  rm -f "$log"
}

while IFS=$'\t' read -r file target; do
  echo "fuzz: $target in $(dirname "$file"), ${each} s"
  fuzz "./$(dirname "$file")" "$target"
done <<<"$targets"
