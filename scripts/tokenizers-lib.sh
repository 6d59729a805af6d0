#!/usr/bin/env bash
# Builds libtokenizers.a, the Rust half of github.com/daulet/tokenizers, from
# the source that the Go module ships, at the version that go/go.mod asks for.
#
# The archive is kept in the user's cache and linked to from
# build/lib/tokenizers-VERSION, where the cgo line of go/tokenizer finds it.
# The version is part of that path because Go does not relink a program when
# only the content of an archive changes.
#
#   MINISGL_CACHE   cache directory (default: $XDG_CACHE_HOME/minisgl or ~/.cache/minisgl)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
module=github.com/daulet/tokenizers

say() { printf 'tokenizers: %s\n' "$*"; }
die() {
  printf 'tokenizers: %s\n' "$*" >&2
  exit 1
}

version=$(awk -v m="$module" '
  $1 == m { print substr($2, 2); exit }
  $1 == "require" && $2 == m { print substr($3, 2); exit }' "$root/go/go.mod")
[ -n "$version" ] || die "go/go.mod does not require $module"
grep -q "#cgo LDFLAGS:.*build/lib/tokenizers-$version\$" "$root/go/tokenizer/link.go" ||
  die "the #cgo line in go/tokenizer/link.go does not name version $version, which go/go.mod requires; change it to build/lib/tokenizers-$version"

# The archive holds machine code, so the key names the target it is for.
os=$(uname -s | tr '[:upper:]' '[:lower:]')
cache=${MINISGL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/minisgl}
dest=$cache/tokenizers-$version-$os-$(uname -m)
archive=$dest/libtokenizers.a

# link makes build/lib/tokenizers-VERSION point at the cache.
link() {
  local at=$root/build/lib/tokenizers-$version
  mkdir -p "$root/build/lib"
  [ "$(readlink "$at" 2>/dev/null || true)" = "$dest" ] || ln -sfn "$dest" "$at"
}

if [ -s "$archive" ]; then
  link
  say "libtokenizers.a $version is ready (cached)"
  exit 0
fi

command -v go >/dev/null || die "go is not installed; Go 1.26 or newer is needed"
command -v cargo >/dev/null || die "cargo is not installed; the tokenizers library is built from Rust source"

say "fetching the source of $module v$version"
cd "$root/go"
go mod download "$module"
source=$(go list -m -f '{{.Dir}}' "$module")
[ -d "$source/src" ] || die "no Rust source under $source"

mkdir -p "$dest"
work=$(mktemp -d "${TMPDIR:-/tmp}/minisgl-tokenizers.XXXXXX")
staged=$work
trap 'rm -rf "$work" "$staged"' EXIT
mkdir "$work/crate"
cp -R "$source/src" "$source/Cargo.toml" "$source/Cargo.lock" "$work/crate/"
chmod -R u+w "$work/crate"
cd "$work/crate"

# tiktoken-rs comes from a git branch in the module; the published 0.9 has the
# same interface and needs no git host. The benchmark and the development
# dependencies are not part of what is copied here. Cargo.lock stays, so all
# other crates keep the versions that the module was released with.
sed -i.orig -e 's|^tiktoken-rs *=.*|tiktoken-rs = "0.9"|' \
  -e '/^\[dev-dependencies\]/,$d' Cargo.toml
cat >>Cargo.toml <<'TOML'
[profile.release]
opt-level = 3
debug = false
strip = "debuginfo"
codegen-units = 4
TOML

say "building with cargo (several minutes, once for each version)"
cargo build --release --lib --quiet --target-dir "$work/target"

built=$work/target/release/libtokenizers.a
# Go links against this symbol; a missing one means a crate of another version.
symbol=$(sed -n 's/.*\(tokenizers_version_[0-9][0-9_]*\)(void).*/\1/p' "$source/tokenizer.go" | head -n 1)
[ -n "$symbol" ] || die "$module v$version names no version symbol in tokenizer.go"
nm "$built" 2>/dev/null | grep "$symbol" >/dev/null ||
  die "the built archive lacks $symbol, so $module v$version cannot link with it"

say "installing to $dest"
strip --strip-debug "$built" 2>/dev/null || true
staged=$(mktemp "$dest/libtokenizers.XXXXXX")
cp "$built" "$staged"
chmod 644 "$staged"
mv -f "$staged" "$archive"
link
say "libtokenizers.a $version is ready ($(du -h "$archive" | cut -f1))"
