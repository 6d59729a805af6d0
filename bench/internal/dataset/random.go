package dataset

import (
	"errors"
	"fmt"
	"strings"
)

// RandomShape is the lengths of random rows, in tokens.
type RandomShape struct {
	InputLen, OutputLen int
	RangeRatio          float64 // lengths are uniform from this share of the full one to it
}

// draw returns the lengths of prompts and answers.
func (s *Source) draw(shape RandomShape) (input, output []int, err error) {
	if input, err = s.lens(shape.InputLen, shape.RangeRatio, s.N); err != nil {
		return nil, nil, err
	}
	if output, err = s.lens(shape.OutputLen, shape.RangeRatio, s.N); err != nil {
		return nil, nil, err
	}
	for i := range input {
		if !s.AsIDs && s.Tokenizer != nil {
			input[i] -= s.Tokenizer.NumSpecial() // the server adds them again
		}
		input[i] = max(input[i], 1)
	}
	return input, output, nil
}

// RandomIDs returns prompts that are runs of consecutive ids from a random start.
// As text they are decoded; without a tokenizer words stand for ids.
func (s *Source) RandomIDs(shape RandomShape) ([]Row, error) {
	input, output, err := s.draw(shape)
	if err != nil {
		return nil, err
	}
	vocab := s.vocab()
	offsets, err := s.Numpy.RandInt(0, vocab, s.N)
	if err != nil {
		return nil, err
	}
	rows := make([]Row, s.N)
	for i := range rows {
		ids := make([]int32, input[i])
		for j := range ids {
			ids[j] = int32((offsets[i] + i + j) % vocab)
		}
		if rows[i], err = s.fromIDs(ids); err != nil {
			return nil, err
		}
		rows[i].OutputLen = output[i]
	}
	return rows, nil
}

// miniMin and miniIDs are the least length of Mini's prompts and answers, and their largest id.
const (
	miniMin = 100
	miniIDs = 10000
)

// Mini returns the requests of the offline benchmarks of nano-vllm and mini-sglang:
// prompts of random ids, and lengths of 100 tokens to those given, as Python's random
// draws them. Of 256 prompts with seed 0 that are 142,827 tokens, and 133,966 of answers.
func (s *Source) Mini(shape RandomShape) ([]Row, error) {
	if shape.InputLen < miniMin || shape.OutputLen < miniMin {
		return nil, fmt.Errorf("dataset: mini has prompts and answers of %d tokens and more: raise --random-input-len and --random-output-len", miniMin)
	}
	between := func(low, high int) int { return low + s.Python.Below(high-low+1) }
	rows := make([]Row, s.N)
	for i := range rows {
		rows[i].IDs = make([]int32, between(miniMin, shape.InputLen))
		rows[i].PromptLen = len(rows[i].IDs)
		for j := range rows[i].IDs {
			rows[i].IDs[j] = int32(between(0, miniIDs) % s.vocab())
		}
	}
	for i := range rows {
		rows[i].OutputLen = between(miniMin, shape.OutputLen)
	}
	return rows, nil
}

// fromIDs makes a row of ids, or of their text.
func (s *Source) fromIDs(ids []int32) (Row, error) {
	if s.AsIDs {
		return Row{IDs: ids, PromptLen: len(ids)}, nil
	}
	if s.Tokenizer == nil {
		return Row{Text: wordsOf(ids), PromptLen: -1}, nil
	}
	text, err := s.Tokenizer.Decode(ids)
	if err != nil {
		return Row{}, fmt.Errorf("dataset: %w", err)
	}
	return Row{Text: text, PromptLen: len(ids)}, nil
}

// Random returns prompts from a ShareGPT file, repeated or cut to random lengths.
func (s *Source) Random(shape RandomShape) ([]Row, error) {
	if s.AsIDs && s.Tokenizer == nil {
		return nil, errors.New("dataset: random prompts as token ids need a tokenizer (--tokenizer DIR); random-ids does not")
	}
	input, output, err := s.draw(shape)
	if err != nil {
		return nil, err
	}
	pairs, err := s.shuffled(readShareGPT)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, p := range pairs {
		i := len(rows)
		if i == s.N {
			break
		}
		row, err := s.resize(p.prompt, input[i])
		if err != nil {
			return nil, err
		}
		if row.PromptLen == 0 {
			continue
		}
		row.OutputLen = output[i]
		rows = append(rows, row)
	}
	return rows, nil
}

// resize repeats or cuts text to n tokens, or without a tokenizer to n words. A
// text without any gives PromptLen 0.
func (s *Source) resize(text string, n int) (Row, error) {
	if s.Tokenizer == nil {
		words := strings.Fields(text)
		if len(words) == 0 {
			return Row{}, nil
		}
		return Row{Text: strings.Join(repeat(words, n), " "), PromptLen: -1}, nil
	}
	ids, err := s.Tokenizer.Encode(text, true)
	if err != nil {
		return Row{}, fmt.Errorf("dataset: %w", err)
	}
	if len(ids) == 0 {
		return Row{}, nil
	}
	return s.fromIDs(repeat(ids, n))
}

func repeat[T any](list []T, n int) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = list[i%len(list)]
	}
	return out
}
