package dataset

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/minisgl/minisgl/bench/internal/numpyrand"
)

// talk is a conversation of several turns. The answers are those of the file; the
// ones that the server gives take their place when the load is sent.
type talk struct {
	users   []string
	answers []string // "" where nothing is recorded; may be shorter than users
	outputs []int    // tokens of each answer
	group   int
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Turns returns a row for each turn of conversations, which waits for the row
// before it in the conversation. N counts conversations, most bounds the turns of
// each; 0 is all there are. With a file, they are its conversations; without one,
// three turns of random lengths.
func (s *Source) Turns(shape RandomShape, most int) ([]Row, error) {
	if s.AsIDs {
		return nil, errors.New("dataset: --tokenize-prompt does not go with conversations of several turns")
	}
	var talks []talk
	var err error
	if s.Path == "" {
		talks, err = s.randomTalks(shape, cmp.Or(most, defaultTurns))
	} else {
		talks, err = s.recordedTalks(most)
	}
	if err != nil {
		return nil, err
	}
	return expand(talks)
}

const defaultTurns = 3

// expand makes a row of each turn.
func expand(talks []talk) ([]Row, error) {
	var rows []Row
	size := 0
	for _, t := range talks {
		var said []message
		for i, user := range t.users {
			said = append(said, message{"user", user})
			data, err := json.Marshal(said)
			if err != nil {
				return nil, fmt.Errorf("dataset: %w", err)
			}
			if size += len(data); size > maxFile {
				return nil, fmt.Errorf("dataset: the conversations have more than %d bytes in all turns: ask for fewer, or fewer turns of each", int64(maxFile))
			}
			row := Row{Messages: data, PromptLen: -1, OutputLen: t.outputs[i], Group: t.group, After: -1}
			if i > 0 {
				row.After = len(rows) - 1
			}
			rows = append(rows, row)
			answer := ""
			if i < len(t.answers) {
				answer = t.answers[i]
			}
			said = append(said, message{"assistant", answer})
		}
	}
	return rows, nil
}

// randomTalks draws all lengths, then the ids where each turn begins.
func (s *Source) randomTalks(shape RandomShape, turns int) ([]talk, error) {
	all := *s
	all.N = s.N * turns
	rows, err := all.RandomIDs(shape)
	if err != nil {
		return nil, err
	}
	talks := make([]talk, s.N)
	for i := range talks {
		for _, row := range rows[i*turns : (i+1)*turns] {
			talks[i].users = append(talks[i].users, row.Text)
			talks[i].outputs = append(talks[i].outputs, row.OutputLen)
		}
	}
	return talks, nil
}

// recordedTalks reads a JSON array of conversations or one conversation a line,
// and shuffles them. Turns of each alternate, the user's first.
func (s *Source) recordedTalks(most int) ([]talk, error) {
	file, err := s.open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	read := bufio.NewReader(file)
	each := eachLineOf
	if first, err := read.Peek(1); err == nil && first[0] == '[' {
		each = eachOfArray
	}
	var all []conversation
	err = each(read, func(c conversation) { all = append(all, c) })
	if err != nil {
		return nil, fmt.Errorf("dataset: %s: %w", s.Path, err)
	}
	numpyrand.Shuffle(s.Python, all)
	var talks []talk
	for _, c := range all {
		if len(talks) == s.N {
			break
		}
		t, err := s.talk(c.turns(), most)
		if err != nil {
			return nil, err
		}
		if len(t.users) > 0 {
			talks = append(talks, t)
		}
	}
	return talks, nil
}

// talk keeps the turns that have an answer or, in a file of users' turns alone,
// a length for it.
func (s *Source) talk(turns []turn, most int) (talk, error) {
	var t talk
	for i := 0; i+1 < len(turns); i += 2 {
		if most > 0 && len(t.users) == most {
			break
		}
		output := s.OutputLen
		if output == 0 {
			var err error
			if output, _, err = s.length(turns[i+1].text()); err != nil {
				return talk{}, err
			}
		}
		t.users = append(t.users, turns[i].text())
		t.answers = append(t.answers, turns[i+1].text())
		t.outputs = append(t.outputs, max(output, 1))
	}
	return t, nil
}

func eachLineOf(r io.Reader, f func(conversation)) error {
	return eachLine(r, func(_ int, line []byte) error {
		var c conversation
		if json.Unmarshal(line, &c) == nil { // others are skipped, as in the dataset custom
			f(c)
		}
		return nil
	})
}
