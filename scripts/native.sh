#!/usr/bin/env bash
# Builds the engine as a Python module, python/minisgl/_native, with gopy.
#
#   scripts/native.sh        for CPUs
#   scripts/native.sh cuda   for GPUs, a second module; make cuda calls it with what it needs
#
# gopy and the goimports that it calls come from bindings/go.mod, so their
# versions are pinned there. gopy writes its Go and C code to a folder
# inside of the Go module (bindings, or go/cmd/minisgl-cuda) and compiles it
# there; only the shared library goes into the package, where its stub lies. It
# leaves libpython unlinked (-dynamic-link), so it loads into any CPython of the
# same version.
#
#   MINISGL_BUILD_PYTHON   the interpreter to build for (default: that of .venv)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${MINISGL_BUILD_PYTHON:-$root/.venv/bin/python}
out=$root/python/minisgl/_native
case ${1:-cpu} in
  cpu) name=minisgl_native module=$root/bindings tags= ;;
  cuda) name=minisgl_native_cuda module=$root/go/cmd/minisgl-cuda tags=cuda,cuda_shared ;;
  *) echo "native: $1: want nothing or cuda" >&2 && exit 2 ;;
esac
generated=$module/$name

die() {
  printf 'native: %s\n' "$*" >&2
  exit 1
}

[ -x "$python" ] || die "$python is missing; run scripts/venv.sh first"
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
stamp_file=$out/.stamp-$name$suffix
ls "$root"/build/lib/tokenizers-*/libtokenizers.a >/dev/null 2>&1 ||
  die "the Rust libraries are missing; run scripts/rust-lib.sh first"

# What the module is made from, tests aside. The tokenizers library is named by
# its version in the Go sources.
sources() {
  cd "$root"
  find go kernels bindings \( -name testdata -o -name 'minisgl_native*' \) -prune -o \
    -type f ! -name '*_test.go' ! -name '*.md' -print0 | sort -z | xargs -0 cat
  cat "$0"
  "$python" -c 'import sys; print(sys.version)'
  go env GOVERSION GOARCH CC
}
stamp=$(sources | sha256sum | cut -d ' ' -f 1)
[ "$(cat "$stamp_file" 2>/dev/null)" != "$stamp" ] || exit 0

# The workspace is off because gopy builds with -mod=mod.
export GOWORK=off
export PATH="$root/build/bin:$PATH"
mkdir -p "$root/build/bin"
(cd "$root/bindings" && go build -o "$root/build/bin" github.com/go-python/gopy golang.org/x/tools/cmd/goimports)

echo "native: building the Python module${tags:+ for GPUs} (a few minutes the first time)"
log=$root/build/native.log
rm -rf "$generated"
mkdir "$generated"
[ -z "$tags" ] || printf 'package main\n\nimport _ "%s/native"\n' "$(cd "$module" && go list -m)" >"$generated/gpu.go"
cd "$module"
gopy build -vm="$python" -output="$generated" -name=$name -dynamic-link=true -symbols=false -build-tags="$tags" \
  github.com/minisgl/minisgl/bindings/native >"$log" 2>&1 || {
  tail -n 40 "$log" >&2
  die "gopy failed; its full output is in build/native.log"
}

# Under a new name first: a running Python may have the old library mapped.
library=_$name$suffix
[ -f "$generated/$library" ] || die "gopy made no $library; its output is in build/native.log"
cp "$generated/$library" "$out/.$library.new"
mv -f "$out/.$library.new" "$out/$library"
printf '%s\n' "$stamp" >"$stamp_file"
echo "native: ready"
