package llm_test

import (
	"strings"
	"testing"

	"github.com/minisgl/minisgl/go/llm"
)

// TestNoGPU: a device that is not there is refused, with the reason; auto is the CPU then.
func TestNoGPU(t *testing.T) {
	cfg := llm.Config{Model: tinyModel, Device: "cuda", NumPageOverride: 64}
	l, err := llm.New(t.Context(), cfg)
	if err == nil {
		l.Close()
		t.Fatal("a program without CUDA opens a GPU")
	}
	for _, part := range []string{"device", "no GPU can be used: there is "} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	cfg.Device = "auto"
	if l, err = llm.New(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := l.Info().Device; !strings.HasPrefix(got, "cpu") {
		t.Errorf("auto is %q, want the CPU", got)
	}
}
