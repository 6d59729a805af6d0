package dataset

import (
	"errors"
	"fmt"
	"math"

	"github.com/minisgl/minisgl/bench/internal/numpyrand"
)

// PrefixShape is a load of groups whose prompts share a system prompt.
type PrefixShape struct {
	Groups, PerGroup                  int
	SystemLen, QuestionLen, OutputLen int
	RangeRatio                        float64
	Ordered                           bool    // keep the order instead of shuffling
	Zipf                              float64 // 0: each group has PerGroup prompts; else groups are drawn with weight 1/rank^Zipf
}

// SharedPrefix returns Groups·PerGroup prompts of random ids, or of their text.
func (s *Source) SharedPrefix(shape PrefixShape) ([]Row, error) {
	total := shape.Groups * shape.PerGroup
	if shape.Groups < 1 || shape.PerGroup < 1 || total > 10_000_000 {
		return nil, fmt.Errorf("dataset: %d groups of %d prompts: want at least 1 of each and at most 10,000,000 in all", shape.Groups, shape.PerGroup)
	}
	if shape.Zipf < 0 || math.IsNaN(shape.Zipf) || math.IsInf(shape.Zipf, 0) {
		return nil, errors.New("dataset: the Zipf exponent must be above 0")
	}
	systemLens, err := s.lens(shape.SystemLen, shape.RangeRatio, shape.Groups)
	if err != nil {
		return nil, err
	}
	questionLens, err := s.lens(shape.QuestionLen, shape.RangeRatio, total)
	if err != nil {
		return nil, err
	}
	outputLens, err := s.lens(shape.OutputLen, shape.RangeRatio, total)
	if err != nil {
		return nil, err
	}
	systems, err := s.randomRows(systemLens)
	if err != nil {
		return nil, err
	}
	questions, err := s.randomRows(questionLens)
	if err != nil {
		return nil, err
	}
	groups := s.groups(shape)
	rows := make([]Row, total)
	for i := range rows {
		if rows[i], err = s.join(systems[groups[i]], questions[i]); err != nil {
			return nil, err
		}
		rows[i].OutputLen, rows[i].Group = outputLens[i], groups[i]
	}
	if !shape.Ordered {
		numpyrand.Shuffle(s.Python, rows)
	}
	return rows, nil
}

func (s *Source) randomRows(lens []int) ([]Row, error) {
	rows := make([]Row, len(lens))
	for i, n := range lens {
		ids := make([]int32, n)
		for j, v := range s.Python.Choices(s.allTokens(), n) {
			ids[j] = int32(v)
		}
		var err error
		if rows[i], err = s.fromIDs(ids); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// join puts a question behind its group's system prompt.
func (s *Source) join(system, question Row) (Row, error) {
	if s.AsIDs {
		ids := append(append([]int32{}, system.IDs...), question.IDs...)
		return Row{IDs: ids, PromptLen: len(ids)}, nil
	}
	row := Row{Text: system.Text + "\n\n" + question.Text, PromptLen: -1}
	n, exact, err := s.length(row.Text)
	if exact {
		row.PromptLen = n
	}
	return row, err
}

// groups gives the group of each prompt.
func (s *Source) groups(shape PrefixShape) []int {
	out := make([]int, shape.Groups*shape.PerGroup)
	if shape.Zipf == 0 {
		for i := range out {
			out[i] = i / shape.PerGroup
		}
		return out
	}
	weights := make([]float64, shape.Groups)
	sum := 0.0
	for g := range weights {
		sum += math.Pow(float64(g+1), -shape.Zipf)
		weights[g] = sum
	}
	for i := range out {
		at := s.Numpy.Float64() * sum
		for out[i] < shape.Groups-1 && at >= weights[out[i]] {
			out[i]++
		}
	}
	return out
}
