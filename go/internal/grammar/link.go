package grammar

// llguidance is in the archive that scripts/rust-lib.sh builds, with the
// tokenizers library; package tokenizer's link.go says why the path names
// versions.

// #cgo CFLAGS: -I${SRCDIR}/../../../build/lib/tokenizers-1.24.0-llguidance-1.9.1
// #cgo LDFLAGS: -L${SRCDIR}/../../../build/lib/tokenizers-1.24.0-llguidance-1.9.1 -ltokenizers -ldl -lm
import "C"
