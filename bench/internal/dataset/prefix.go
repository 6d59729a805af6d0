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
	Turns                             int     // of each prompt; 0 and 1: it is no conversation
	Fast                              bool    // do not count the tokens of prompts
}

func (shape *PrefixShape) check() error {
	turns := shape.Groups * shape.PerGroup * shape.Turns
	if shape.Groups < 1 || shape.PerGroup < 1 || turns > maxGenerated {
		return fmt.Errorf("dataset: %d groups of %d prompts of %d turns: want at least 1 of each and at most %d in all", shape.Groups, shape.PerGroup, shape.Turns, maxGenerated)
	}
	if shape.Zipf < 0 || math.IsNaN(shape.Zipf) || math.IsInf(shape.Zipf, 0) {
		return errors.New("dataset: the Zipf exponent must be above 0")
	}
	return nil
}

const maxGenerated = 10_000_000 // prompts

// SharedPrefix returns Groups·PerGroup prompts of random ids, or of their text; of
// conversations, a row for each turn, as Turns does.
func (s *Source) SharedPrefix(shape PrefixShape) ([]Row, error) {
	shape.Turns = max(shape.Turns, 1)
	if err := shape.check(); err != nil {
		return nil, err
	}
	if s.AsIDs && shape.Turns > 1 {
		return nil, errors.New("dataset: --tokenize-prompt does not go with conversations of several turns")
	}
	total := shape.Groups * shape.PerGroup
	systemLens, err := s.lens(shape.SystemLen, shape.RangeRatio, shape.Groups)
	if err != nil {
		return nil, err
	}
	questionLens, err := s.lens(shape.QuestionLen, shape.RangeRatio, total*shape.Turns)
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
	if shape.Turns > 1 {
		talks := make([]talk, total)
		for i := range talks {
			talks[i] = prefixTalk(systems[groups[i]].Text, questions[i*shape.Turns:(i+1)*shape.Turns], outputLens[i], groups[i])
		}
		if !shape.Ordered {
			numpyrand.Shuffle(s.Python, talks)
		}
		return expand(talks)
	}
	rows := make([]Row, total)
	for i := range rows {
		if rows[i], err = s.join(systems[groups[i]], questions[i], shape.Fast); err != nil {
			return nil, err
		}
		rows[i].OutputLen, rows[i].Group = outputLens[i], groups[i]
	}
	if !shape.Ordered {
		numpyrand.Shuffle(s.Python, rows)
	}
	return rows, nil
}

// prefixTalk is a conversation that opens with a group's system prompt.
func prefixTalk(system string, questions []Row, output, group int) talk {
	t := talk{group: group}
	for i, q := range questions {
		text := q.Text
		if i == 0 {
			text = system + "\n\n" + text
		}
		t.users, t.outputs = append(t.users, text), append(t.outputs, output)
	}
	return t
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

// join puts a question behind its group's system prompt. fast leaves text uncounted.
func (s *Source) join(system, question Row, fast bool) (Row, error) {
	if s.AsIDs {
		ids := append(append([]int32{}, system.IDs...), question.IDs...)
		return Row{IDs: ids, PromptLen: len(ids)}, nil
	}
	row := Row{Text: system.Text + "\n\n" + question.Text, PromptLen: -1}
	if fast {
		return row, nil
	}
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
