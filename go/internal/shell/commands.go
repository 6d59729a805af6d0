package shell

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

var errExit = errors.New("leave")

// command is what a line that begins with a slash asks for.
type command struct {
	name, argument, help string
	run                  func(s *shell, argument string) error
}

// commands is in the order of /help. It is a function because /help is in it.
func commands() []command {
	return []command{
		{"/help", "", "show this list", (*shell).help},
		{"/params", "[NAME=VALUE ...]", "show or set how tokens are chosen", (*shell).params},
		{"/reset", "", "forget the conversation", func(s *shell, _ string) error { s.reset(); return nil }},
		{"/save", "FILE", "write the conversation to a file, as JSON", (*shell).save},
		{"/load", "FILE", "go on with the conversation of a file", (*shell).load},
		{"/exit", "", "leave, as Ctrl-D does", func(*shell, string) error { return errExit }},
	}
}

const usage = `Ctrl-C stops an answer. A message of several lines begins and ends with """ (as one
must that begins with /), or its lines end with \. Pasted lines stay together.`

// obey runs a command. What is wrong with it is printed, and is no error.
func (s *shell) obey(line string) error {
	name, argument, _ := strings.Cut(line, " ")
	list := commands()
	i := slices.IndexFunc(list, func(c command) bool { return c.name == name })
	if i < 0 {
		fmt.Fprintf(s.Out, "There is no command %s. /help shows those there are.\n", name)
		return nil
	}
	c, argument := list[i], strings.TrimSpace(argument)
	err := checkArgument(c, argument)
	if err == nil {
		err = c.run(s, argument)
	}
	if err != nil && !errors.Is(err, errExit) {
		fmt.Fprintf(s.Out, "%s: %v\n", name, err)
		return nil
	}
	return err
}

func checkArgument(c command, argument string) error {
	optional := strings.HasPrefix(c.argument, "[")
	switch {
	case c.argument == "" && argument != "":
		return fmt.Errorf("takes nothing, got %q", argument)
	case c.argument != "" && !optional && argument == "":
		return fmt.Errorf("say which: %s %s", c.name, c.argument)
	}
	return nil
}

// complete returns the commands that begin with a line.
func completeCommand(line string) []string {
	var fits []string
	for _, c := range commands() {
		if strings.HasPrefix(line, "/") && strings.HasPrefix(c.name, line) {
			fits = append(fits, c.name)
		}
	}
	return fits
}

func (s *shell) help(string) error {
	for _, c := range commands() {
		fmt.Fprintf(s.Out, "  %-24s  %s\n", strings.TrimSpace(c.name+" "+c.argument), c.help)
	}
	fmt.Fprintln(s.Out, usage)
	return nil
}

// save writes the conversation. A file that holds anything but a conversation is
// left alone.
func (s *shell) save(name string) error {
	path, err := expandHome(name)
	if err != nil {
		return err
	}
	if _, err := readConversation(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("it is there and holds no conversation, so it is kept: %w", err)
	}
	data, err := json.MarshalIndent(s.messages, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o600); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "%d messages are in %s.\n", len(s.messages), path)
	return nil
}

func (s *shell) load(name string) error {
	path, err := expandHome(name)
	if err != nil {
		return err
	}
	messages, err := readConversation(path)
	if err != nil {
		return err
	}
	s.messages = messages
	fmt.Fprintf(s.Out, "The conversation has %d messages.\n", len(messages))
	return nil
}

// readConversation reads a JSON list of messages.
func readConversation(path string) ([]Message, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > MaxInput {
		return nil, fmt.Errorf("%s is no file of at most %d bytes", path, MaxInput)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var messages []Message
	if err := json.Unmarshal(data, &messages); err != nil {
		return nil, fmt.Errorf(`%s must hold a JSON list of {"role": ..., "content": ...}: %w`, path, err)
	}
	for i, m := range messages {
		if !slices.Contains([]string{"system", "user", "assistant"}, m.Role) {
			return nil, fmt.Errorf("%s: the role of message %d must be system, user or assistant, got %q", path, i, m.Role)
		}
	}
	return messages, nil
}

func expandHome(path string) (string, error) {
	rest, ok := strings.CutPrefix(path, "~/")
	if !ok {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, rest), nil
}
