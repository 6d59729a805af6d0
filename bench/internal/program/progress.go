package program

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Progress draws a bar of n steps on w while it is a terminal. step counts one;
// stop removes the bar. quiet draws nothing.
func Progress(w io.Writer, n int, what string, quiet bool) (step, stop func()) {
	file, isFile := w.(*os.File)
	if quiet || !isFile || !term.IsTerminal(int(file.Fd())) {
		return func() {}, func() {}
	}
	bar := progressbar.NewOptions(n,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
	// A bar that cannot be drawn must not end a measurement.
	return func() { _ = bar.Add(1) }, func() { _ = bar.Clear() }
}
