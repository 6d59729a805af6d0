package llm

import (
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/model"
	"github.com/minisgl/minisgl/go/internal/weights"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// samplingDefaults reads a model's generation_config.json. As in vLLM and
// sglang, do_sample is not looked at.
func samplingDefaults(text []byte, log *slog.Logger) (SamplingDefaults, error) {
	var d SamplingDefaults
	if text == nil {
		return d, nil
	}
	var raw struct {
		Temperature       *float64 `json:"temperature"`
		TopP              *float64 `json:"top_p"`
		TopK              *int     `json:"top_k"`
		MinP              *float64 `json:"min_p"`
		RepetitionPenalty *float64 `json:"repetition_penalty"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return d, fmt.Errorf("llm: generation_config.json: %w", err)
	}
	d = SamplingDefaults{Temperature: raw.Temperature, TopP: raw.TopP, TopK: raw.TopK, MinP: raw.MinP, RepetitionPenalty: raw.RepetitionPenalty}
	params := core.DefaultSampling()
	d.Apply(&params)
	if err := params.Validate(); err != nil {
		log.Warn("generation_config.json recommends what can't be; its sampling parameters are left out", "error", err)
		return SamplingDefaults{}, nil
	}
	return d, nil
}

// endTokens returns the tokens that end a sequence: those of generation_config,
// else of the configuration, else the tokenizer's one.
func endTokens(ck *weights.Checkpoint, mc model.Config, tok *tokenizer.Tokenizer) ([]int32, error) {
	if ck.Generation != nil {
		var g struct {
			EOS json.RawMessage `json:"eos_token_id"`
		}
		if err := json.Unmarshal(ck.Generation, &g); err != nil {
			return nil, fmt.Errorf("llm: generation_config.json: %w", err)
		}
		if ids, err := model.ParseEOS(g.EOS); err != nil || len(ids) > 0 {
			return ids, err
		}
	}
	if len(mc.EOS) > 0 {
		return mc.EOS, nil
	}
	if id, ok := tok.EOS(); ok {
		return []int32{id}, nil
	}
	return nil, nil
}
