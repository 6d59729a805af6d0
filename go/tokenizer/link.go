package tokenizer

// The Rust half of github.com/daulet/tokenizers is in a static library that
// scripts/rust-lib.sh builds, with llguidance for package grammar. Go does not
// relink when only the content of an archive changes, so the versions are part of
// the path; TestLinkedVersion holds them together.

// #cgo LDFLAGS: -L${SRCDIR}/../../build/lib/tokenizers-1.24.0-llguidance-1.9.1
import "C"
