package tokenizer

// The Rust half of github.com/daulet/tokenizers is a static library that
// scripts/tokenizers-lib.sh builds. Go does not relink when only the content
// of an archive changes, so the version of the module is part of the path;
// TestLinkedVersion holds the two together.

// #cgo LDFLAGS: -L${SRCDIR}/../../build/lib/tokenizers-1.24.0
import "C"
