// Package dataset makes the prompts of a benchmark.
package dataset

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
)

// Use separates prompts for different purposes under one seed.
type Use string

// Warm-up prompts differ from measured ones, so that a warmed prefix cache does
// not answer a measured request.
const (
	Measured Use = "measured"
	WarmUp   Use = "warm-up"
)

var questions = []string{
	"What should a beginner know about %s before spending any money on it?",
	"How did %s change over the last hundred years, and what drove the change?",
	"Which three mistakes do people make most often with %s, and why?",
	"How would you explain %s to a curious ten-year-old child?",
	"What are the strongest arguments for and against learning %s today?",
	"Can you compare two common approaches to %s and say when each is better?",
	"How could a small town organise a weekend festival about %s?",
	"What would a careful plan for one month of practising %s look like?",
}

var topics = []string{
	"growing tomatoes", "sailing a small boat", "baking sourdough bread", "reading old maps", "repairing bicycles",
	"keeping bees", "drawing portraits", "playing the cello", "brewing tea", "watching birds", "writing short stories",
	"building wooden chairs", "studying the tides", "restoring clocks", "cooking for twenty guests", "measuring rainfall",
	"learning a second language", "training a sheepdog", "photographing the night sky", "planning a railway line",
	"teaching arithmetic", "collecting folk songs", "designing a board game", "crossing a desert on foot",
}

var details = []string{
	"Please give concrete examples and mention roughly how long each step takes.",
	"My budget is modest, and I only have the evenings of working days for it.",
	"Start with the most important point, then add what an expert would notice.",
	"I have already read two introductions, and they contradicted each other in many places.",
	"Assume that the weather is cold and that the nearest shop is an hour away.",
	"Where numbers matter, say how you arrived at them and how certain you are.",
	"A friend of mine disagrees with the usual advice, so name its weak spots too.",
	"Finish with a short list of things that I can check by myself next week.",
	"If there is a local tradition that helps, describe it in a sentence or two.",
	"Do not worry about being brief, because I would rather understand the reasons.",
}

// Prompts returns n questions of exactly the given number of words (at least 1).
// Each opens with a word that no other prompt of the same seed and use has, so
// that no two share a prefix. The same arguments always give the same prompts,
// and a larger n only adds to the end.
func Prompts(n, words int, seed uint64, use Use) ([]string, error) {
	if n < 0 {
		return nil, fmt.Errorf("dataset: number of prompts is %d, want 0 or more", n)
	}
	if words < 1 {
		return nil, fmt.Errorf("dataset: prompt length is %d words, want at least 1", words)
	}
	prompts := make([]string, n)
	for i := range prompts {
		prompts[i] = prompt(i, words, seed, use)
	}
	return prompts, nil
}

func prompt(index, words int, seed uint64, use Use) string {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%s %d", use, seed)
	rng := rand.New(rand.NewPCG(hash.Sum64(), uint64(index)))
	text := []string{fmt.Sprintf("%08x-%d:", rng.Uint32(), index)}
	question := fmt.Sprintf(questions[rng.IntN(len(questions))], topics[rng.IntN(len(topics))])
	text = append(text, strings.Fields(question)...)
	for len(text) < words {
		text = append(text, strings.Fields(details[rng.IntN(len(details))])...)
	}
	return strings.Join(text[:words], " ")
}
