package engine

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/go/internal/model"
	"github.com/minisgl/minisgl/go/internal/ops"
	"github.com/minisgl/minisgl/go/internal/weights"
)

// A device with memory of its own has pages for its share of that, without the CPU's cap.
func TestPagesOfDeviceMemory(t *testing.T) {
	ck, err := weights.Open(filepath.Join(tiny, "llama-tied"))
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	mc, err := model.ParseConfig(ck.Config)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{DType: ops.F32, KVDType: ops.F32, PageSize: 16, MaxRunning: 1 << 14, MaxExtendTokens: 64, MaxSeqLen: 1 << 16}
	needed := weightBytes(cfg, mc, ck) + activationBytes(cfg, mc)
	for _, room := range []int64{64 << 20, 6 << 30} {
		cfg.FreeMemory = needed + room
		pages, _, err := ChooseNumPages(cfg, mc, ck, 1)
		if want := room / PageBytes(mc, 16, ops.F32); err != nil || int64(pages) != want {
			t.Errorf("room for %d bytes: %d pages, %v; want %d", room, pages, err, want)
		}
	}
	cfg.FreeMemory = 1 << 10
	if _, _, err := ChooseNumPages(cfg, mc, ck, 0.9); err == nil || !strings.Contains(err.Error(), "memory_ratio") {
		t.Errorf("no room: %v", err)
	}
}
