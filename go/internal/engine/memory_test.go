package engine

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/go/internal/model"
	"github.com/minisgl/minisgl/go/internal/ops"
	"github.com/minisgl/minisgl/go/internal/weights"
)

// A share of the machine's memory in which no page fits is an error with what to change.
func TestNoRoomForPages(t *testing.T) {
	ck, err := weights.Open(filepath.Join(tiny, "llama-tied"))
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	mc, err := model.ParseConfig(ck.Config)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{DType: ops.F32, KVDType: ops.F32, PageSize: 16, MaxRunning: 4, MaxExtendTokens: 64, MaxSeqLen: 128, MemoryRatio: 1e-9}
	if _, _, err := ChooseNumPages(cfg, mc, ck); err == nil || !strings.Contains(err.Error(), "raise memory_ratio (1e-09)") {
		t.Errorf("no room: %v", err)
	}
	cfg.MemoryRatio = 0.5
	if n, bound, err := ChooseNumPages(cfg, mc, ck); err != nil || n != 4*128/16 || bound != usefulBound {
		t.Errorf("%d pages, %s, %v", n, bound, err)
	}
}
