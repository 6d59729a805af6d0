package onebatchserver

import (
	"errors"
	"fmt"
	"os"

	"github.com/minisgl/minisgl/bench/internal/dataset"
)

// replay tells whether a dataset has prompts of recorded lengths.
func replay(name string) bool { return name == "sharegpt" || name == "custom" }

// prompts makes the token ids of a batch.
func (b *bench) prompts(size, input, output int) ([][]int32, error) {
	if b.c.promptFile != "" {
		ids, err := b.filePrompt()
		if err != nil {
			return nil, err
		}
		all := make([][]int32, size)
		for i := range all {
			all[i] = ids
		}
		return all, nil
	}
	b.src.N = size
	rows, err := b.rows(size, dataset.RandomShape{InputLen: input, OutputLen: output, RangeRatio: 1})
	if err != nil {
		return nil, err
	}
	if len(rows) < size {
		return nil, fmt.Errorf("the dataset %s has only %d usable prompts for a batch of %d", b.c.dataset, len(rows), size)
	}
	all := make([][]int32, size)
	for i := range all {
		all[i] = rows[i].IDs
		if rows[i].IDs == nil {
			if all[i], err = b.tok.Encode(rows[i].Text, true); err != nil {
				return nil, err
			}
		}
		if lens := b.c.lens; len(lens) > 0 {
			all[i] = resize(all[i], lens[i%len(lens)])
		}
	}
	return all, nil
}

func (b *bench) rows(size int, shape dataset.RandomShape) ([]dataset.Row, error) {
	switch b.c.dataset {
	case "random":
		return b.src.Random(shape)
	case "sharegpt":
		return b.src.ShareGPT()
	case "custom":
		return b.src.Custom()
	case "generated-shared-prefix":
		prefix := b.c.prefix
		prefix.Groups = min(prefix.Groups, size)
		prefix.PerGroup = (size + prefix.Groups - 1) / prefix.Groups
		return b.src.SharedPrefix(prefix)
	}
	return b.src.RandomIDs(shape)
}

// maxPromptFile bounds --fixed-prompt-file, in bytes.
const maxPromptFile = 64 << 20

func (b *bench) filePrompt() ([]int32, error) {
	if b.tok == nil {
		return nil, errNoTokenizer
	}
	info, err := os.Stat(b.c.promptFile)
	if err != nil {
		return nil, fmt.Errorf("--fixed-prompt-file: %w", err)
	}
	if info.Size() > maxPromptFile {
		return nil, fmt.Errorf("--fixed-prompt-file: %s has %d bytes, more than %d", b.c.promptFile, info.Size(), maxPromptFile)
	}
	data, err := os.ReadFile(b.c.promptFile)
	if err != nil {
		return nil, fmt.Errorf("--fixed-prompt-file: %w", err)
	}
	text := string(data)
	if b.c.template {
		if text, err = b.tok.Template(text); err != nil {
			return nil, err
		}
	}
	return b.tok.Encode(text, !b.c.template)
}

var errNoTokenizer = errors.New("text prompts need a tokenizer: name one with --local-tokenizer-path; the server has no /tokenize")

// resize repeats or cuts ids to n.
func resize(ids []int32, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = ids[i%len(ids)]
	}
	return out
}
