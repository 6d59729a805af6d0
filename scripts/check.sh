#!/usr/bin/env bash
# Says in one line each which of the tools to build with is missing or too old.
set -euo pipefail
missing=0
say() { echo "missing: $*" >&2; missing=1; }

version_at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

if command -v go >/dev/null; then
  have=$(go env GOVERSION | sed 's/^go//; s/[- ].*//')
  version_at_least 1.26 "$have" || say "Go 1.26 or newer (this is $have)"
else
  say "Go 1.26 or newer"
fi
python=${PYTHON:-python3}
if command -v "$python" >/dev/null; then
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || say "Python 3.10 or newer (this is $("$python" -V 2>&1))"
  "$python" -c 'import ensurepip, venv' 2>/dev/null || say "Python's venv module (Debian and Ubuntu: python3-venv)"
  [ -f "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] || say "Python's headers (Debian and Ubuntu: python3-dev)"
else
  say "Python 3.10 or newer"
fi
command -v cargo >/dev/null || say "cargo, the Rust build tool (rustup installs it), for the tokenizers and llguidance"
command -v "${CC:-cc}" >/dev/null || say "a C compiler (gcc or clang)"
exit $missing
