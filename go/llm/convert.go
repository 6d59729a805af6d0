package llm

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/minisgl/minisgl/go/internal/model"
	"github.com/minisgl/minisgl/go/internal/weights"
)

// The kinds of quantization that Convert knows: all projections in 8 bits or in
// 4, embeddings and the output head always in 8.
const (
	Int8 = weights.Int8
	Int4 = weights.Int4
)

// Conversion says what Convert is to do.
type Conversion struct {
	Model        string // what Config.Model takes, but no GGUF file
	ModelSource  string // as Config.ModelSource
	Quantization string // Int8 or Int4
	Output       string // the directory to make; it must not exist
}

// Convert quantizes a model once and saves it as a directory that Config.Model
// takes. The output comes into being whole or not at all. Progress is written to
// w.
func Convert(ctx context.Context, c Conversion, w io.Writer) error {
	path, err := weights.Resolve(ctx, weights.Ref{Model: c.Model, Source: c.ModelSource}, w)
	if err != nil {
		return err
	}
	if err := checkModel(path); err != nil {
		return err
	}
	return weights.Convert(ctx, weights.Conversion{Input: path, Output: c.Output, Quantization: c.Quantization, Progress: w})
}

// checkModel is an error for a model that could not be run once it is converted.
func checkModel(path string) error {
	ck, err := weights.OpenBare(path)
	if err != nil {
		return err
	}
	if _, err := model.ParseConfig(ck.Config); err != nil {
		return errors.Join(fmt.Errorf("llm: %s: %w", path, err), ck.Close())
	}
	return ck.Close()
}
