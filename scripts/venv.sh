#!/usr/bin/env bash
# Makes .venv with what the Python package needs for building and testing, and
# installs the package there in place: changes under python/ need no new run.
#
#   PYTHON   the interpreter to use (default: python3); 3.10 or newer
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}
venv=$root/.venv
pins=$root/python/requirements-dev.txt

die() {
  printf 'venv: %s\n' "$*" >&2
  exit 1
}

command -v "$python" >/dev/null || die "$python is not installed; Python 3.10 or newer is needed"
version=$("$python" -c 'import sys; print(sys.version, sys.prefix)')
stamp=$(printf '%s\n' "$version" "$root" | cat - "$pins" "$0" | cksum)
if [ -x "$venv/bin/python" ] && [ "$(cat "$venv/.stamp" 2>/dev/null)" = "$stamp" ]; then
  exit 0
fi

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  die "Python 3.10 or newer is needed, $python is $("$python" -V 2>&1); set PYTHON to another one"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
  die "Python's venv module is missing; install it (on Debian: apt install python3-venv)"

echo "venv: making .venv with $("$python" -V)"
"$python" -m venv --clear "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet install)
"${pip[@]}" --requirement "$pins"
"${pip[@]}" --no-deps --no-build-isolation --editable "$root"
printf '%s\n' "$stamp" >"$venv/.stamp"
echo "venv: ready"
