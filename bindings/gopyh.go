// Package bindings builds the engine as a Python module; see package native.
package bindings

// The code that gopy writes imports gopyh. Go must not drop it from go.mod while
// that code isn't there.
import _ "github.com/go-python/gopy/gopyh"
