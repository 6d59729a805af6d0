package serving

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/minisgl/minisgl/bench/internal/report"
)

const askWait = 10 * time.Second

// flush empties the server's prefix cache.
func (b *Bench) flush(ctx context.Context) error {
	if !b.o.Flush {
		return nil
	}
	if b.o.backend.flush == "" {
		return fmt.Errorf("--flush-cache: backend %s has no way to empty a cache", b.o.Backend)
	}
	wait := time.Duration(b.o.FlushTimeout * float64(time.Second))
	ctx, cancel := context.WithTimeout(ctx, wait+askWait)
	defer cancel()
	path := b.o.backend.flush + "?timeout=" + url.QueryEscape(strconv.FormatFloat(b.o.FlushTimeout, 'f', 1, 64))
	status, data, err := b.http.Fetch(ctx, http.MethodPost, b.o.base+path, []byte{})
	if err != nil {
		return fmt.Errorf("--flush-cache: %w", err)
	}
	if status/100 != 2 {
		return fmt.Errorf("--flush-cache: POST %s: %d %s: %.200s", b.o.backend.flush, status, http.StatusText(status), data)
	}
	select {
	case <-time.After(settle):
	case <-ctx.Done():
	}
	return nil
}

type profileRequest struct {
	Activities []string `json:"activities"`
	NumSteps   *int     `json:"num_steps,omitempty"`
	StartStep  *int     `json:"start_step,omitempty"`
	ByStage    bool     `json:"profile_by_stage"`
	OutputDir  string   `json:"output_dir,omitempty"`
	Prefix     string   `json:"profile_prefix,omitempty"`
}

func (b *Bench) startProfile(ctx context.Context) error {
	p := &b.o.profile
	if !p.on {
		return nil
	}
	req := profileRequest{Activities: p.activities, ByStage: p.byStage, OutputDir: p.outputDir, Prefix: p.prefix}
	if p.steps > 0 {
		req.NumSteps = &p.steps
	}
	if p.startStep > 0 {
		req.StartStep = &p.startStep
	}
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	status, data, err := b.http.Fetch(ctx, http.MethodPost, b.o.base+"/start_profile", body)
	if err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	if status/100 != 2 {
		return fmt.Errorf("--profile: POST /start_profile: %d %s: %.200s", status, http.StatusText(status), data)
	}
	return nil
}

// stopProfile only reports failure: the measurement is done.
func (b *Bench) stopProfile(ctx context.Context) {
	if !b.o.profile.on || b.o.profile.steps > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	status, _, err := b.http.Fetch(ctx, http.MethodPost, b.o.base+"/stop_profile", []byte{})
	if err != nil || status/100 != 2 {
		fmt.Fprintf(b.messages, "Stopping the profile failed: status %d, %v\n", status, err)
	}
}

// askServer adds what the server says of itself. A server that does not is fine.
func (b *Bench) askServer(ctx context.Context, r *report.Result) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	status, data, err := b.http.Fetch(ctx, http.MethodGet, b.o.base+"/server_info", nil)
	if err != nil || status != http.StatusOK || !json.Valid(data) {
		return
	}
	r.ServerInfo = data
	type states struct {
		Internal []struct {
			AcceptLength float64 `json:"avg_spec_accept_length"`
		} `json:"internal_states"`
	}
	var info struct {
		states
		Decode []states `json:"decode"`
	}
	if json.Unmarshal(data, &info) != nil {
		return
	}
	if len(info.Decode) > 0 {
		info.states = info.Decode[0]
	}
	if len(info.Internal) > 0 {
		r.AcceptLength = info.Internal[0].AcceptLength
	}
}
