package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// profile is the profile that runs, if one does.
type profile struct {
	mu   sync.Mutex
	file *os.File // nil: none runs
	path string   // of the files, without their endings
}

// profileFiles answers /stop_profile.
type profileFiles struct {
	CPUProfile string `json:"cpu_profile"` // for go tool pprof
	Trace      string `json:"trace"`       // in Chrome's format, for ui.perfetto.dev
	Batches    int    `json:"batches"`     // that the trace holds
}

// startProfile serves /start_profile. What its callers send along is not looked
// at: it is about GPUs, or names folders of this machine.
func (s *Server) startProfile(w http.ResponseWriter, _ *http.Request) {
	if s.now() != ready {
		s.fail(w, s.unavailable())
		return
	}
	p := &s.profile
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil {
		s.fail(w, openai.Errorf(http.StatusConflict, "a profile is running; end it with /stop_profile"))
		return
	}
	if err := p.begin(s.cfg.ProfileDir); err != nil {
		s.fail(w, fmt.Errorf("starting a profile: %w", err))
		return
	}
	s.engine.StartTrace()
	s.log.Info("profiling", "files", p.path+".*")
	s.writeText(w, "Start profiling.\n")
}

// begin starts the CPU profile.
func (p *profile) begin(dir string) error {
	if dir == "" {
		dir = os.TempDir()
	}
	file, err := os.CreateTemp(dir, "minisgl-"+time.Now().Format("20060102-150405")+"-*.pprof")
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	p.file, p.path = file, file.Name()[:len(file.Name())-len(filepath.Ext(file.Name()))]
	return nil
}

// stopProfile serves /stop_profile.
func (s *Server) stopProfile(w http.ResponseWriter, _ *http.Request) {
	files, err := s.endProfile()
	if err != nil {
		s.fail(w, err)
		return
	}
	s.log.Info("profiled", "cpu_profile", files.CPUProfile, "trace", files.Trace, "batches", files.Batches)
	s.writeJSON(w, http.StatusOK, files)
}

func (s *Server) endProfile() (profileFiles, error) {
	p := &s.profile
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil {
		return profileFiles{}, openai.Errorf(http.StatusConflict, "no profile is running; begin one with /start_profile")
	}
	pprof.StopCPUProfile()
	batches := s.engine.StopTrace()
	files := profileFiles{CPUProfile: p.file.Name(), Trace: p.path + ".trace.json", Batches: len(batches)}
	err := p.file.Close()
	p.file = nil
	if err == nil {
		err = writeTrace(files.Trace, batches)
	}
	if err != nil {
		return files, fmt.Errorf("writing a profile: %w", err)
	}
	return files, nil
}

// traceEvent is a complete event of Chrome's trace format; times are in
// microseconds.
type traceEvent struct {
	Name     string         `json:"name"`
	Phase    string         `json:"ph"`
	Begin    float64        `json:"ts"`
	Duration float64        `json:"dur"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Args     map[string]int `json:"args"`
}

// writeTrace writes batches as Chrome's trace format has them.
func writeTrace(path string, batches []llm.BatchTrace) error {
	events := make([]traceEvent, len(batches))
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	for i, b := range batches {
		name := "decode"
		if b.Prefill {
			name = "prefill"
		}
		events[i] = traceEvent{
			Name: name, Phase: "X", Begin: micros(b.Start.Sub(batches[0].Start)), Duration: micros(b.End.Sub(b.Start)), Process: 1, Thread: 1,
			Args: map[string]int{"requests": b.Requests, "tokens": b.Tokens, "sampled": b.Sampled},
		}
	}
	data, err := json.Marshal(map[string]any{"traceEvents": events, "displayTimeUnit": "ms"})
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}
