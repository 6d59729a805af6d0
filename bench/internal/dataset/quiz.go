package dataset

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Examples before each question, and the length of an answer, as in the usual
// evaluations. The rows are a load with long shared prefixes; nothing is scored.
const (
	hellaSwagShots = 20
	mmluShots      = 5
	quizOutput     = 1
)

// HellaSwag returns the questions of a file such as hellaswag_val.jsonl, each
// behind the first 20 with their right endings.
func (s *Source) HellaSwag() ([]Row, error) {
	file, err := s.open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var shots strings.Builder
	var questions []string
	seen := 0
	err = eachLine(file, func(_ int, line []byte) error {
		var q struct {
			Activity string   `json:"activity_label"`
			Context  string   `json:"ctx"`
			Endings  []string `json:"endings"`
			Label    int      `json:"label"`
		}
		if err := json.Unmarshal(line, &q); err != nil {
			return err
		}
		text := q.Activity + ": " + q.Context + " "
		switch seen++; {
		case seen > hellaSwagShots:
			if len(questions) < s.N {
				questions = append(questions, text)
			}
		case q.Label < 0 || q.Label >= len(q.Endings):
			return fmt.Errorf("label %d of %d endings", q.Label, len(q.Endings))
		default:
			shots.WriteString(text + q.Endings[q.Label] + "\n\n")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("dataset: %s: %w", s.Path, err)
	}
	return s.quiz(shots.String(), questions)
}

// MMLU returns the questions of a file test/SUBJECT_test.csv, each behind the
// first 5 of dev/SUBJECT_dev.csv beside it with their answers.
func (s *Source) MMLU() ([]Row, error) {
	if s.Path == "" {
		return nil, errors.New("dataset: mmlu needs a file: --dataset-path data/test/SUBJECT_test.csv")
	}
	subject, ok := strings.CutSuffix(filepath.Base(s.Path), "_test.csv")
	if !ok {
		return nil, fmt.Errorf("dataset: %s: want a file test/SUBJECT_test.csv", s.Path)
	}
	dev, err := readMMLU(filepath.Join(filepath.Dir(s.Path), "..", "dev", subject+"_dev.csv"), mmluShots, true)
	if err != nil {
		return nil, err
	}
	questions, err := readMMLU(s.Path, s.N, false)
	if err != nil {
		return nil, err
	}
	title := "The following are multiple choice questions (with answers) about " + strings.ReplaceAll(subject, "_", " ") + ".\n\n"
	return s.quiz(title+strings.Join(dev, ""), questions)
}

// readMMLU reads up to n questions: columns question, A, B, C, D, answer.
func readMMLU(path string, n int, answered bool) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("dataset: %w", err)
	}
	defer file.Close()
	table := csv.NewReader(io.LimitReader(file, maxFile))
	table.FieldsPerRecord = 6
	var out []string
	for len(out) < n {
		row, err := table.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("dataset: %s: %w", path, err)
		}
		text := row[0]
		for i, letter := range []string{"A", "B", "C", "D"} {
			text += "\n" + letter + ". " + row[i+1]
		}
		text += "\nAnswer:"
		if answered {
			text += " " + row[5] + "\n\n"
		}
		out = append(out, text)
	}
	return out, nil
}

// quiz makes a row of each question behind the examples.
func (s *Source) quiz(shots string, questions []string) ([]Row, error) {
	if s.AsIDs {
		return nil, errors.New("dataset: --tokenize-prompt does not go with hellaswag and mmlu")
	}
	rows := make([]Row, len(questions))
	for i, question := range questions {
		rows[i] = Row{Text: shots + question, PromptLen: -1, OutputLen: cmp.Or(s.OutputLen, quizOutput)}
		n, exact, err := s.length(rows[i].Text)
		if err != nil {
			return nil, err
		}
		if exact {
			rows[i].PromptLen = n
		}
	}
	return rows, nil
}
