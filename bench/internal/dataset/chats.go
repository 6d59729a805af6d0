package dataset

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/minisgl/minisgl/bench/internal/numpyrand"
)

// pair is the first two turns of a conversation.
type pair struct{ prompt, reply string }

type turn struct {
	Value   *string `json:"value"`
	Content *string `json:"content"`
}

func (t turn) text() string {
	switch {
	case t.Content != nil:
		return *t.Content
	case t.Value != nil:
		return *t.Value
	}
	return ""
}

type conversation struct {
	Conversations []turn `json:"conversations"`
	Conversation  []turn `json:"conversation"`
}

func (c conversation) turns() []turn {
	if c.Conversations == nil {
		return c.Conversation
	}
	return c.Conversations
}

func (c conversation) pair() (pair, bool) {
	turns := c.turns()
	if len(turns) < 2 {
		return pair{}, false
	}
	return pair{turns[0].text(), turns[1].text()}, true
}

func (s *Source) open() (*os.File, error) {
	if s.Path == "" {
		return nil, errors.New("dataset: this dataset needs a file: --dataset-path FILE (ShareGPT_V3_unfiltered_cleaned_split.json for sharegpt and random; random-ids needs none)")
	}
	file, err := os.Open(s.Path)
	if err != nil {
		return nil, fmt.Errorf("dataset: %w", err)
	}
	return file, nil
}

// readShareGPT reads a JSON array of conversations.
func readShareGPT(r io.Reader) ([]pair, error) {
	var pairs []pair
	err := eachOfArray(r, func(c conversation) {
		if p, ok := c.pair(); ok {
			pairs = append(pairs, p)
		}
	})
	return pairs, err
}

// eachOfArray reads a JSON array of conversations, one at a time.
func eachOfArray(r io.Reader, f func(conversation)) error {
	dec := json.NewDecoder(bufio.NewReaderSize(io.LimitReader(r, maxFile), 1<<20))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return errors.New("want a JSON array of conversations, as in ShareGPT_V3_unfiltered_cleaned_split.json")
	}
	for n := 1; dec.More(); n++ {
		var c conversation
		if err := dec.Decode(&c); err != nil {
			return fmt.Errorf("conversation %d: %w", n, err)
		}
		f(c)
	}
	return nil
}

// readCustom reads conversations, one JSON object per line; others are skipped.
func readCustom(r io.Reader) ([]pair, error) {
	var pairs []pair
	err := eachLineOf(r, func(c conversation) {
		if p, ok := c.pair(); ok {
			pairs = append(pairs, p)
		}
	})
	return pairs, err
}

// eachLine calls f for each line that is not blank, numbered from 1.
func eachLine(r io.Reader, f func(n int, line []byte) error) error {
	scanner := bufio.NewScanner(io.LimitReader(r, maxFile))
	scanner.Buffer(make([]byte, 64<<10), maxLine)
	for n := 1; scanner.Scan(); n++ {
		if line := bytes.TrimSpace(scanner.Bytes()); len(line) > 0 {
			if err := f(n, line); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
	}
	return scanner.Err()
}

// shuffled reads the file's pairs and shuffles them as Python would.
func (s *Source) shuffled(read func(io.Reader) ([]pair, error)) ([]pair, error) {
	file, err := s.open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	pairs, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("dataset: %s: %w", s.Path, err)
	}
	numpyrand.Shuffle(s.Python, pairs)
	return pairs, nil
}

// ShareGPT returns first turns of a ShareGPT file, answered as long as there.
func (s *Source) ShareGPT() ([]Row, error) { return s.conversations(readShareGPT) }

// Custom is ShareGPT for a file of one conversation per line.
func (s *Source) Custom() ([]Row, error) { return s.conversations(readCustom) }

const assistantSuffix = "Assistant:"

func (s *Source) conversations(read func(io.Reader) ([]pair, error)) ([]Row, error) {
	if s.AsIDs {
		return nil, errors.New("dataset: --tokenize-prompt goes with random, random-ids, generated-shared-prefix and traces")
	}
	pairs, err := s.shuffled(read)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, p := range pairs {
		if len(rows) == s.N {
			break
		}
		row, ok, err := s.conversation(p)
		if err != nil {
			return nil, err
		}
		if ok {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// conversation makes a row of a pair; false if it is too short or too long.
func (s *Source) conversation(p pair) (Row, bool, error) {
	text := p.prompt
	if s.PromptSuffix != "" {
		text = strings.TrimSuffix(text, assistantSuffix) + s.PromptSuffix + assistantSuffix
	}
	if s.Template {
		if s.Tokenizer == nil {
			return Row{}, false, errors.New("dataset: --apply-chat-template needs --tokenizer DIR")
		}
		var err error
		if text, err = s.Tokenizer.Template(text); err != nil {
			return Row{}, false, fmt.Errorf("dataset: %w", err)
		}
	}
	n, exact, err := s.length(text)
	if err != nil {
		return Row{}, false, err
	}
	row := Row{Text: text, PromptLen: -1, OutputLen: s.OutputLen}
	if exact {
		row.PromptLen = n
	}
	if s.OutputLen == 0 {
		if row.OutputLen, _, err = s.length(p.reply); err != nil {
			return Row{}, false, err
		}
	}
	ok := n >= 2 && row.OutputLen >= 2 && (s.ContextLen == 0 || n+row.OutputLen <= s.ContextLen)
	return row, ok, nil
}

// defaultChatOutput is the length of answers to chats that do not give one.
const defaultChatOutput = 256

// OpenAI returns the chat requests of a file, one JSON object per line, in order.
// Keys other than the messages, the model and the length go along as they are.
func (s *Source) OpenAI() ([]Row, error) {
	file, err := s.open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var rows []Row
	err = eachLine(file, func(_ int, line []byte) error {
		if len(rows) == s.N {
			return nil
		}
		row, ok := s.openAI(line)
		if ok {
			rows = append(rows, row)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("dataset: %s: %w", s.Path, err)
	}
	return rows, nil
}

func (s *Source) openAI(line []byte) (Row, bool) {
	var keys map[string]json.RawMessage
	var messages []json.RawMessage
	if json.Unmarshal(line, &keys) != nil || json.Unmarshal(keys["messages"], &messages) != nil || len(messages) == 0 {
		return Row{}, false
	}
	row := Row{Messages: keys["messages"], PromptLen: -1, OutputLen: defaultChatOutput}
	var asked int
	if json.Unmarshal(keys["max_tokens"], &asked) == nil && asked > 0 {
		row.OutputLen = asked
	}
	if s.OutputLen > 0 {
		row.OutputLen = s.OutputLen
	}
	for _, name := range []string{"messages", "model", "max_tokens", "max_completion_tokens", "stream", "stream_options"} {
		delete(keys, name)
	}
	if len(keys) > 0 {
		row.Extra = keys
	}
	return row, true
}
