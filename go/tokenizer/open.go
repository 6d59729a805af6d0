package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
)

// maxConfigBytes bounds the configuration files beside a tokenizer.json.
const maxConfigBytes = 32 << 20

// config is what matters of a tokenizer_config.json.
type config struct {
	tokens       map[string]string // bos_token and so on: the texts
	AddBOS       *bool             `json:"add_bos_token"`
	AddEOS       *bool             `json:"add_eos_token"`
	ChatTemplate json.RawMessage   `json:"chat_template"`
	Added        map[string]struct {
		addedToken
	} `json:"added_tokens_decoder"`
}

// tokenNames are the special tokens with a name that templates can use.
var tokenNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// Open reads the tokenizer of a model directory in Hugging Face's layout:
// tokenizer.json and, where present, tokenizer_config.json,
// special_tokens_map.json and the files of the chat template.
func Open(dir string) (*Tokenizer, error) {
	t, err := open(dir)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: open %s: %w", dir, err)
	}
	return t, nil
}

func open(dir string) (*Tokenizer, error) {
	data, err := readFile(dir, "tokenizer.json", maxDefinitionBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("there is no tokenizer.json; save the tokenizer with transformers' save_pretrained, which writes it")
	}
	if err != nil {
		return nil, err
	}
	def, err := parseDefinition(data)
	if err != nil {
		return nil, err
	}
	cfg, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	if err := def.apply(cfg); err != nil {
		return nil, err
	}
	sources, err := readTemplates(dir, cfg.ChatTemplate)
	if err != nil {
		return nil, err
	}
	templates, err := compileTemplates(sources)
	if err != nil {
		return nil, err
	}
	t, err := newTokenizer(def)
	if err != nil {
		return nil, err
	}
	t.name(def, cfg.tokens)
	t.templates = templates
	return t, nil
}

// name records the named special tokens.
func (t *Tokenizer) name(def *definition, names map[string]string) {
	t.names = names
	if id, ok := def.id(names["bos_token"]); ok && names["bos_token"] != "" {
		t.bos = id
	}
	if id, ok := def.id(names["eos_token"]); ok && names["eos_token"] != "" {
		t.eos = id
	}
}

// readFile reads a file of at most limit bytes.
func readFile(dir, name string, limit int64) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s has more than the %d bytes allowed", name, limit)
	}
	return data, nil
}

// readOptional reads a file that may be missing.
func readOptional(dir, name string) ([]byte, bool, error) {
	data, err := readFile(dir, name, maxConfigBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return data, err == nil, err
}

// readConfig reads tokenizer_config.json, and special_tokens_map.json for the
// names that the former leaves out.
func readConfig(dir string) (*config, error) {
	cfg := &config{tokens: map[string]string{}}
	for _, file := range []string{"tokenizer_config.json", "special_tokens_map.json"} {
		data, ok, err := readOptional(dir, file)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(data, &fields); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, name := range tokenNames {
			if text, ok := tokenText(fields[name]); ok && cfg.tokens[name] == "" {
				cfg.tokens[name] = text
			}
		}
		if file == "tokenizer_config.json" {
			if err := json.Unmarshal(data, cfg); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return cfg, nil
}

// tokenText reads a token that is written as a string or as an object.
func tokenText(field json.RawMessage) (string, bool) {
	var text string
	if len(field) > 0 && json.Unmarshal(field, &text) == nil {
		return text, text != ""
	}
	var object struct {
		Content string `json:"content"`
	}
	if len(field) > 0 && json.Unmarshal(field, &object) == nil {
		return object.Content, object.Content != ""
	}
	return "", false
}

// apply changes the definition as transformers does when it loads cfg.
func (d *definition) apply(cfg *config) error {
	if err := d.applyAdded(cfg); err != nil {
		return err
	}
	for _, name := range tokenNames {
		if text := cfg.tokens[name]; text != "" {
			d.addSpecial(text)
		}
	}
	if cfg.AddBOS == nil && cfg.AddEOS == nil {
		return nil
	}
	var bos, eos string
	if cfg.AddBOS != nil && *cfg.AddBOS {
		bos = cfg.tokens["bos_token"]
	}
	if cfg.AddEOS != nil && *cfg.AddEOS {
		eos = cfg.tokens["eos_token"]
	}
	return d.surround(bos, eos)
}

// applyAdded takes over added_tokens_decoder: its settings win over those in
// tokenizer.json, and tokens missing there are added.
func (d *definition) applyAdded(cfg *config) error {
	var extra []addedToken
	for key, entry := range cfg.Added {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || id < 0 || id > maxID {
			return fmt.Errorf("tokenizer_config.json: added_tokens_decoder has the key %q, not an id in 0..%d", key, maxID)
		}
		tok := entry.addedToken
		tok.ID = int32(id)
		i := slices.IndexFunc(d.added, func(a addedToken) bool { return a.Content == tok.Content })
		if i < 0 {
			extra = append(extra, tok)
			continue
		}
		tok.ID = d.added[i].ID
		tok.Special = tok.Special || d.added[i].Special
		d.added[i] = tok
	}
	sort.Slice(extra, func(i, j int) bool { return extra[i].ID < extra[j].ID })
	d.added = append(d.added, extra...)
	return nil
}

// readTemplates returns the sources of the chat templates by name. A file of
// its own wins over tokenizer_config.json, as in transformers.
func readTemplates(dir string, field json.RawMessage) (map[string]string, error) {
	if data, ok, err := readOptional(dir, "chat_template.jinja"); err != nil || ok {
		sources := map[string]string{"default": string(data)}
		if err != nil {
			return nil, err
		}
		return sources, readNamedTemplates(dir, sources)
	}
	data, ok, err := readOptional(dir, "chat_template.json")
	if err != nil {
		return nil, err
	}
	if ok {
		var file struct {
			ChatTemplate json.RawMessage `json:"chat_template"`
		}
		if err := json.Unmarshal(data, &file); err != nil {
			return nil, fmt.Errorf("chat_template.json: %w", err)
		}
		field = file.ChatTemplate
	}
	return parseTemplates(field)
}

// readNamedTemplates adds the templates in the additional_chat_templates folder.
func readNamedTemplates(dir string, sources map[string]string) error {
	const folder, suffix = "additional_chat_templates", ".jinja"
	paths, err := filepath.Glob(filepath.Join(dir, folder, "*"+suffix))
	if err != nil {
		return err
	}
	for _, path := range paths {
		data, err := readFile(filepath.Dir(path), filepath.Base(path), maxConfigBytes)
		if err != nil {
			return err
		}
		name := filepath.Base(path)
		sources[name[:len(name)-len(suffix)]] = string(data)
	}
	return nil
}

// parseTemplates reads chat_template: a string, or a list of named ones.
func parseTemplates(field json.RawMessage) (map[string]string, error) {
	if len(field) == 0 || string(field) == "null" {
		return nil, nil
	}
	var source string
	if json.Unmarshal(field, &source) == nil {
		return map[string]string{"default": source}, nil
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(field, &list); err != nil {
		return nil, fmt.Errorf("chat_template is neither a string nor a list of named templates: %w", err)
	}
	sources := make(map[string]string, len(list))
	for _, entry := range list {
		sources[entry.Name] = entry.Template
	}
	return sources, nil
}
