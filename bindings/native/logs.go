package native

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxLogLines bounds what waits for a reader; when there is more, the oldest
// lines go.
const maxLogLines = 1000

// journal keeps what the engines log, one JSON object a line, until NextLogs
// takes it. It is the writer below slog's JSON handler, which writes a record at
// once, and tells the handler which records are wanted.
type journal struct {
	ready chan struct{} // holds a token when lines may have come
	level atomic.Int64  // of slog

	mu    sync.Mutex
	lines []string
}

var logs = &journal{ready: make(chan struct{}, 1)}

// NextLogs waits until an engine logs something, at most timeoutMs milliseconds,
// and takes all lines that there are. Each is a JSON object with time (Unix
// seconds), level (as Python numbers them), msg, and the record's attributes.
// Records below level, also in Python's numbers, are no longer kept from now on.
func NextLogs(level, timeoutMs int64) (lines string, err error) {
	defer guard(&err)
	logs.level.Store((level - pythonInfo) * 4 / 10)
	out := logs.take()
	if out == "" && timeoutMs > 0 {
		select {
		case <-logs.ready:
		case <-time.After(time.Duration(timeoutMs) * time.Millisecond):
		}
		out = logs.take()
	}
	return out, nil
}

// Level implements slog.Leveler.
func (j *journal) Level() slog.Level { return slog.Level(j.level.Load()) }

// Write implements io.Writer; p is one record.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	if len(j.lines) == maxLogLines {
		j.lines = append(j.lines[:0], j.lines[1:]...)
	}
	j.lines = append(j.lines, string(p))
	j.mu.Unlock()
	select {
	case j.ready <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (j *journal) take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := strings.Join(j.lines, "")
	j.lines = j.lines[:0]
	return out
}

// newLogger returns a logger for an engine, whose lines NextLogs gives.
func newLogger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: logs, ReplaceAttr: forPython}))
}

// pythonInfo is logging.INFO; Python's levels are 10 apart where slog's are 4.
const pythonInfo = 20

// forPython turns values into what Python reads as they are: times into seconds,
// levels into its numbers, durations into text.
func forPython(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindTime:
		return slog.Float64(a.Key, float64(v.Time().UnixNano())/1e9)
	case slog.KindDuration:
		return slog.String(a.Key, v.Duration().String())
	case slog.KindAny:
		if level, ok := v.Any().(slog.Level); ok {
			return slog.Int(a.Key, int(level)*10/4+pythonInfo)
		}
	}
	return a
}
