package native

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

const pythonDebug = 10

// takeLogs returns the lines that were logged, as Python would read them.
func takeLogs(t *testing.T, level int64) []map[string]any {
	t.Helper()
	text, err := NextLogs(level, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	for line := range strings.Lines(text) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, record)
	}
	return all
}

func TestLogLinesAreForPython(t *testing.T) {
	takeLogs(t, pythonDebug)
	before := float64(time.Now().UnixNano()) / 1e9
	newLogger().With("engine", 1).Warn("odd", "n", 3, "took", 1500*time.Millisecond, "error", errors.New("why"))
	all := takeLogs(t, pythonDebug)
	if len(all) != 1 {
		t.Fatalf("got %v", all)
	}
	at, _ := all[0]["time"].(float64)
	if at < before-1 || at > before+60 {
		t.Errorf("time is %v, not %v", all[0]["time"], before)
	}
	delete(all[0], "time")
	want := map[string]any{"level": 30.0, "msg": "odd", "engine": 1.0, "n": 3.0, "took": "1.5s", "error": "why"}
	for k, v := range want {
		if all[0][k] != v {
			t.Errorf("%s is %v, want %v", k, all[0][k], v)
		}
	}
}

func TestLevelsAreThoseOfPython(t *testing.T) {
	defer takeLogs(t, pythonDebug)
	log := newLogger()
	for _, tc := range []struct {
		level int64
		want  []float64
	}{
		{10, []float64{10, 20, 30, 40}},
		{20, []float64{20, 30, 40}},
		{40, []float64{40}},
		{50, nil},
		{0, []float64{10, 20, 30, 40}},
	} {
		takeLogs(t, tc.level)
		for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			log.Log(t.Context(), level, "x")
		}
		all := takeLogs(t, tc.level)
		if len(all) != len(tc.want) {
			t.Fatalf("level %d: %d lines, want %d", tc.level, len(all), len(tc.want))
		}
		for i, want := range tc.want {
			if all[i]["level"] != want {
				t.Errorf("level %d: line %d has %v, want %v", tc.level, i, all[i]["level"], want)
			}
		}
	}
}

func TestUnreadLogsAreBounded(t *testing.T) {
	takeLogs(t, pythonDebug)
	log := newLogger()
	for i := range maxLogLines + 5 {
		log.Info("x", "i", i)
	}
	all := takeLogs(t, pythonDebug)
	if len(all) != maxLogLines || all[0]["i"] != 5.0 || all[len(all)-1]["i"] != float64(maxLogLines+4) {
		t.Errorf("%d lines, from %v to %v", len(all), all[0]["i"], all[len(all)-1]["i"])
	}
}
