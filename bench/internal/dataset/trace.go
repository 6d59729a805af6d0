package dataset

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"
)

// TraceKind is the format of a recorded load.
type TraceKind string

// The formats. Times are rebased to the first request.
const (
	// Mooncake: one JSON object per line: timestamp (ms), input_length,
	// output_length, and hash_ids of blocks of 512 prompt tokens.
	Mooncake TraceKind = "mooncake"
	// Qwen: the same with timestamp in seconds, blocks of 16 tokens, chat_id and
	// parent_chat_id (-1 for the first turn of a chat).
	Qwen TraceKind = "qwen"
	// BurstGPT: CSV with the columns Timestamp (s), Request tokens and Response tokens.
	BurstGPT TraceKind = "burstgpt"
	// Requests: one JSON object per line: timestamp (s), messages or prompt, and
	// max_tokens; other keys go along with the request.
	Requests TraceKind = "requests"
)

// ParseTraceKind reads the name of a format.
func ParseTraceKind(name string) (TraceKind, error) {
	switch kind := TraceKind(name); kind {
	case Mooncake, Qwen, BurstGPT, Requests:
		return kind, nil
	case "bailian":
		return Qwen, nil
	}
	return "", fmt.Errorf("dataset: %q is not a trace format: want mooncake, qwen, burstgpt or requests", name)
}

// entry is one recorded request.
type entry struct {
	Timestamp *float64 `json:"timestamp"`
	Input     int      `json:"input_length"`
	Output    int      `json:"output_length"`
	Hashes    []int64  `json:"hash_ids"`
	ChatID    *int64   `json:"chat_id"`
	Parent    *int64   `json:"parent_chat_id"`
	row       Row
}

// Trace returns up to N requests of a recorded load, in the order of their times.
// Prompts have the recorded lengths; those that share leading hash ids share
// that many blocks of tokens.
func (s *Source) Trace(kind TraceKind) ([]Row, error) {
	file, err := s.open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var entries []entry
	switch kind {
	case BurstGPT:
		entries, err = s.readBurstGPT(file)
	case Requests:
		entries, err = s.readRequests(file)
	default:
		entries, err = s.readHashed(file)
	}
	if err != nil {
		return nil, fmt.Errorf("dataset: %s: %w", s.Path, err)
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(*a.Timestamp, *b.Timestamp) })
	return s.traceRows(s.window(entries, kind.unit()), kind)
}

// Rounds makes a conversation of so many turns of each request of a trace without
// chats: the same prompt again behind what was answered, marked with its round.
func Rounds(rows []Row, rounds int) ([]Row, error) {
	var out []Row
	for _, row := range rows {
		t := talk{group: row.Group}
		for i := range rounds {
			t.users = append(t.users, fmt.Sprintf("Round %d: %s", i+1, row.Text))
			t.outputs = append(t.outputs, row.OutputLen)
		}
		turns, err := expand([]talk{t})
		if err != nil {
			return nil, err
		}
		for i := range turns {
			turns[i].At = row.At
			if i > 0 {
				turns[i].After += len(out)
			}
		}
		out = append(out, turns...)
	}
	return out, nil
}

// unit is what timestamps count.
func (k TraceKind) unit() time.Duration {
	if k == Mooncake {
		return time.Millisecond
	}
	return time.Second
}

// block is how many tokens a hash id stands for.
func (k TraceKind) block() int {
	if k == Mooncake {
		return 512
	}
	return 16
}

// since returns the time from the first of sorted entries to e.
func (e *entry) since(first *entry, unit time.Duration) time.Duration {
	return time.Duration((*e.Timestamp - *first.Timestamp) * float64(unit))
}

// window cuts sorted entries to the first N of the window.
func (s *Source) window(entries []entry, unit time.Duration) []entry {
	if len(entries) == 0 {
		return nil
	}
	var out []entry
	for i := range entries {
		at := entries[i].since(&entries[0], unit)
		if at >= s.From && (s.To == 0 || at < s.To) && len(out) < s.N {
			out = append(out, entries[i])
		}
	}
	return out
}

func (s *Source) traceRows(entries []entry, kind TraceKind) ([]Row, error) {
	chats := map[int64]int{} // index by chat id
	rows := make([]Row, len(entries))
	for i, e := range entries {
		row := e.row
		if kind != Requests {
			var err error
			if row, err = s.recorded(e, i, kind.block()); err != nil {
				return nil, err
			}
		}
		row.At = e.since(&entries[0], kind.unit())
		row.After = -1
		if e.Parent != nil && *e.Parent >= 0 {
			if at, ok := chats[*e.Parent]; ok {
				row.After = at
			}
		}
		if e.ChatID != nil {
			chats[*e.ChatID] = i
		}
		rows[i] = row
	}
	return rows, nil
}

// recorded makes a prompt of the recorded length: a run of ids for each block,
// and one that no other request has behind them.
func (s *Source) recorded(e entry, index, block int) (Row, error) {
	vocab := s.vocab()
	ids := make([]int32, 0, e.Input)
	for _, hash := range e.Hashes {
		ids = append(ids, randomIDs(fmt.Sprintf("block %d", hash), vocab, min(block, e.Input-len(ids)))...)
		if len(ids) == e.Input {
			break
		}
	}
	ids = append(ids, randomIDs(fmt.Sprintf("request %d", index), vocab, e.Input-len(ids))...)
	row, err := s.fromIDs(ids)
	row.OutputLen = cmp.Or(s.OutputLen, e.Output)
	return row, err
}

// check bounds what a trace may ask for.
func (e *entry) check() error {
	switch {
	case e.Timestamp == nil || math.IsNaN(*e.Timestamp) || math.Abs(*e.Timestamp) > 1e12:
		return errors.New("no usable timestamp")
	case e.Input < 1 || e.Input > maxPrompt:
		return fmt.Errorf("a prompt of %d tokens: want 1 to %d", e.Input, maxPrompt)
	case e.Output < 1 || e.Output > maxPrompt:
		return fmt.Errorf("an answer of %d tokens: want 1 to %d", e.Output, maxPrompt)
	}
	return nil
}

func (s *Source) readHashed(r io.Reader) ([]entry, error) {
	var entries []entry
	err := eachLine(r, func(_ int, line []byte) error {
		if len(entries) == maxTrace {
			return errors.New("too many requests")
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if err := e.check(); err != nil {
			return err
		}
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

func (s *Source) readRequests(r io.Reader) ([]entry, error) {
	var entries []entry
	err := eachLine(r, func(_ int, line []byte) error {
		if len(entries) == maxTrace {
			return errors.New("too many requests")
		}
		e := entry{Input: 1, Output: 1}
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if err := e.check(); err != nil {
			return err
		}
		row, ok := s.openAI(line)
		if !ok {
			var body struct {
				Prompt    string `json:"prompt"`
				MaxTokens int    `json:"max_tokens"`
			}
			if err := json.Unmarshal(line, &body); err != nil || body.Prompt == "" {
				return errors.New("a request has messages or a prompt")
			}
			row = Row{Text: body.Prompt, PromptLen: -1, OutputLen: cmp.Or(s.OutputLen, max(body.MaxTokens, 0), defaultChatOutput)}
		}
		for _, key := range []string{"timestamp", "chat_id", "parent_chat_id"} {
			delete(row.Extra, key)
		}
		e.row = row
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// readBurstGPT reads requests that were answered; those with no response tokens failed.
func (s *Source) readBurstGPT(r io.Reader) ([]entry, error) {
	table := csv.NewReader(io.LimitReader(r, maxFile))
	header, err := table.Read()
	if err != nil {
		return nil, err
	}
	table.ReuseRecord = true
	var columns [3]int
	for i, name := range []string{"Timestamp", "Request tokens", "Response tokens"} {
		if columns[i] = slices.Index(header, name); columns[i] < 0 {
			return nil, fmt.Errorf("no column %q", name)
		}
	}
	var entries []entry
	for len(entries) < maxTrace {
		record, err := table.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		var v [3]float64
		for i, column := range columns {
			if v[i], err = strconv.ParseFloat(record[column], 64); err != nil {
				return nil, fmt.Errorf("column %q: %w", header[column], err)
			}
		}
		e := entry{Timestamp: &v[0], Input: int(v[1]), Output: int(v[2])}
		if e.Output == 0 || e.Input == 0 {
			continue
		}
		if err := e.check(); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}
