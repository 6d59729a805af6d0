#!/usr/bin/env bash
# Builds libtokenizers.a, one archive of the two Rust libraries that the engine
# stands on: the Rust half of github.com/daulet/tokenizers, from the source that
# the Go module ships, at the version that go/go.mod asks for, and llguidance,
# from the Rust registry. Two archives would each bring Rust's own runtime, whose
# symbols clash in one program.
#
# The archive and llguidance's header are kept in the user's cache and linked to
# from build/lib/tokenizers-VERSION-llguidance-VERSION, where the cgo lines of
# go/tokenizer and go/internal/grammar find them. The versions are part of that
# path because Go does not relink a program when only the content of an archive
# changes.
#
#   MINISGL_CACHE   cache directory (default: $XDG_CACHE_HOME/minisgl or ~/.cache/minisgl)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
module=github.com/daulet/tokenizers
llguidance=1.9.1

say() { printf 'rust libraries: %s\n' "$*"; }
die() {
  printf 'rust libraries: %s\n' "$*" >&2
  exit 1
}

version=$(awk -v m="$module" '
  $1 == m { print substr($2, 2); exit }
  $1 == "require" && $2 == m { print substr($3, 2); exit }' "$root/go/go.mod")
[ -n "$version" ] || die "go/go.mod does not require $module"
name=tokenizers-$version-llguidance-$llguidance
for file in go/tokenizer/link.go go/internal/grammar/link.go; do
  grep -q "#cgo LDFLAGS:.*build/lib/$name\( \|\$\)" "$root/$file" ||
    die "the #cgo line in $file does not name the versions that are built; change it to build/lib/$name"
done

# The archive holds machine code, so the key names the target it is for.
os=$(uname -s | tr '[:upper:]' '[:lower:]')
cache=${MINISGL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/minisgl}
dest=$cache/$name-$os-$(uname -m)
archive=$dest/libtokenizers.a

# link makes build/lib/NAME point at the cache.
link() {
  local at=$root/build/lib/$name
  mkdir -p "$root/build/lib"
  [ "$(readlink "$at" 2>/dev/null || true)" = "$dest" ] || ln -sfn "$dest" "$at"
}

if [ -s "$archive" ]; then
  link
  say "tokenizers $version and llguidance $llguidance are ready (cached)"
  exit 0
fi

command -v go >/dev/null || die "go is not installed; Go 1.26 or newer is needed"
command -v cargo >/dev/null || die "cargo is not installed; tokenizers and llguidance are built from Rust source"

say "fetching the source of $module v$version"
cd "$root/go"
go mod download "$module"
source=$(go list -m -f '{{.Dir}}' "$module")
[ -d "$source/src" ] || die "no Rust source under $source"

mkdir -p "$dest"
work=$(mktemp -d "${TMPDIR:-/tmp}/minisgl-rust.XXXXXX")
staged=$work
trap 'rm -rf "$work" "$staged"' EXIT
mkdir "$work/crate"
cp -R "$source/src" "$source/Cargo.toml" "$source/Cargo.lock" "$work/crate/"
chmod -R u+w "$work/crate"
cd "$work/crate"

# tiktoken-rs comes from a git branch in the module; the published 0.9 has the
# same interface and needs no git host. The benchmark and the development
# dependencies are not part of what is copied here. Cargo.lock stays, so all
# other crates keep the versions that the module was released with. A crate that
# is named is linked, and its C functions become the archive's.
sed -i.orig -e 's|^tiktoken-rs *=.*|tiktoken-rs = "0.9"|' \
  -e '/^\[dev-dependencies\]/,$d' Cargo.toml
cat >>Cargo.toml <<TOML
[dependencies.llguidance]
version = "=$llguidance"
default-features = false
features = ["ahash", "lark", "referencing"]

[profile.release]
opt-level = 3
debug = false
strip = "debuginfo"
codegen-units = 4
TOML
echo 'extern crate llguidance;' >>src/lib.rs

say "building with cargo (several minutes, once for each version)"
cargo build --release --lib --quiet --target-dir "$work/target"

built=$work/target/release/libtokenizers.a
# Go links against these symbols; a missing one means a crate of another version.
symbol=$(sed -n 's/.*\(tokenizers_version_[0-9][0-9_]*\)(void).*/\1/p' "$source/tokenizer.go" | head -n 1)
[ -n "$symbol" ] || die "$module v$version names no version symbol in tokenizer.go"
for wanted in "$symbol" llg_new_matcher llg_clone_matcher; do
  nm "$built" 2>/dev/null | grep " T _\{0,1\}$wanted\$" >/dev/null ||
    die "the built archive lacks $wanted, so $module v$version or llguidance $llguidance cannot link with it"
done
header=$(ls "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"llguidance-$llguidance/llguidance.h" | head -n 1)
[ -s "$header" ] || die "llguidance $llguidance ships no llguidance.h"

say "installing to $dest"
cp "$header" "$dest/llguidance.h"
strip --strip-debug "$built" 2>/dev/null || true
staged=$(mktemp "$dest/libtokenizers.XXXXXX")
cp "$built" "$staged"
chmod 644 "$staged"
mv -f "$staged" "$archive"
link
say "tokenizers $version and llguidance $llguidance are ready ($(du -h "$archive" | cut -f1))"
