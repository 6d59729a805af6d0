package tokenizer

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

// Bounds of a chat template. A template comes with the model and is trusted
// like its weights: these stop accidents, not a template made to do harm.
const (
	maxTemplateBytes = 1 << 20
	maxNesting       = 200      // brackets and blocks within one another
	maxOutputBytes   = 16 << 20 // rendered text
	maxRange         = 100_000  // items of range(), as in Jinja's sandbox
	maxStackFrames   = 5_000    // Go calls below a macro, against endless recursion
)

// TemplateError is an error that the template itself raised with
// raise_exception, because of what the messages are. Its text is the
// template's own.
type TemplateError struct{ Message string }

func (e *TemplateError) Error() string { return e.Message }

// compileTemplates compiles the templates of a model. One that the engine does
// not know all of is an error here, not in the middle of a conversation.
func compileTemplates(sources map[string]string) (map[string]*jinja.Template, error) {
	templates := make(map[string]*jinja.Template, len(sources))
	for name, source := range sources {
		t, err := compileTemplate(source)
		if err != nil {
			return nil, fmt.Errorf("chat template %q: %w; change it, or take it away and send plain prompts", name, err)
		}
		templates[name] = t
	}
	return templates, nil
}

// compileTemplate compiles source in the dialect of transformers.
func compileTemplate(source string) (t *jinja.Template, err error) {
	defer recoverTo(&err)
	if len(source) > maxTemplateBytes {
		return nil, fmt.Errorf("it has %d bytes, more than the %d allowed", len(source), maxTemplateBytes)
	}
	// Jinja reads every kind of line end as a newline and drops one at the end.
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	source, used, err := adapt(strings.TrimSuffix(source, "\n"))
	if err != nil {
		return nil, err
	}
	if t, err = jinja.Compile(source); err != nil {
		return nil, err
	}
	return t, tryOut(used)
}

// tryOut finds filters and tests that the engine does not have: it looks them up
// when a template uses them.
func tryOut(used map[string]bool) error {
	for _, expression := range slices.Sorted(maps.Keys(used)) {
		t, err := jinja.Compile("{{ " + expression + " }}")
		if err != nil {
			return err
		}
		if _, err := t.RenderValues(templateFuncs(time.Now)); err != nil && strings.Contains(err.Error(), "unknown ") {
			return err
		}
	}
	return nil
}

// recoverTo turns a panic of the template engine into an error.
func recoverTo(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("the template engine failed: %v", r)
	}
}

// Names that adapt puts into a template. They are set for each rendering.
const (
	nameToJSON = "msgl_tojson"
	nameTrim   = "msgl_trim"
	namePrint  = "msgl_string"
	nameSpace  = "msgl_space"
	nameGuard  = "msgl_guard"
)

var (
	tagPattern    = regexp.MustCompile(`(?s)\{\{|\{%|\{#`)
	filterPattern = regexp.MustCompile(`\|\s*(tojson|trim|string)\b`)
	stripPattern  = regexp.MustCompile(`\.\s*([lr]?strip)\(\s*\)`)
	usedPattern   = regexp.MustCompile(`\|\s*(\w+)|\bis\s+(?:not\s+)?(\w+)`)
	rawPattern    = regexp.MustCompile(`(?s)^\{%[-+]?\s*raw\s*[-+]?%\}.*?\{%[-+]?\s*endraw\s*[-+]?%\}`)
)

// adapt rewrites the tags of a template where the engine differs from
// transformers' Jinja: some filters become ours, strip gets the
// characters that Python calls space, printed values are written as Python
// writes them, and macros check the depth of the stack. It also returns
// expressions that use each filter and each test once.
func adapt(source string) (adapted string, used map[string]bool, err error) {
	var out strings.Builder
	used = map[string]bool{}
	depth := 0
	for {
		at := tagPattern.FindStringIndex(source)
		if at == nil {
			out.WriteString(source)
			return out.String(), used, nil
		}
		out.WriteString(source[:at[0]])
		source = source[at[0]:]
		if raw := rawPattern.FindString(source); raw != "" {
			out.WriteString(raw)
			source = source[len(raw):]
			continue
		}
		tag, err := readTag(source)
		if err != nil {
			return "", nil, err
		}
		source = source[len(tag.text):]
		tag.note(used)
		if depth += tag.blocks(); depth > maxNesting {
			return "", nil, fmt.Errorf("it has more than %d blocks within one another", maxNesting)
		}
		out.WriteString(tag.adapted())
	}
}

// tag is one {{ }}, {% %} or {# #} of a template.
type tag struct {
	text  string
	parts []string // text within the delimiters: code and string literals in turn
	open  string   // {{ or {%, with a sign for white space
	close string
}

// readTag reads the tag at the start of source.
func readTag(source string) (tag, error) {
	if strings.HasPrefix(source, "{#") {
		end := strings.Index(source, "#}")
		if end < 0 {
			return tag{}, errors.New("a comment has no end")
		}
		return tag{text: source[:end+2]}, nil
	}
	closer := map[string]string{"{{": "}}", "{%": "%}"}[source[:2]]
	t := tag{open: source[:2]}
	i := 2
	if i < len(source) && (source[i] == '-' || source[i] == '+') {
		t.open = source[:3]
		i++
	}
	begin, nested := i, 0
	for i < len(source) {
		c := source[i]
		switch {
		case c == '\'' || c == '"':
			t.parts = append(t.parts, source[begin:i])
			begin = i
			if i = literalEnd(source, i); i < 0 {
				return tag{}, errors.New("a string in a tag has no end")
			}
			t.parts = append(t.parts, source[begin:i])
			begin = i
			continue
		case nested <= 0 && strings.HasPrefix(source[i:], closer):
			return t.end(source, begin, i), nil
		case strings.IndexByte("([{", c) >= 0:
			if nested++; nested > maxNesting {
				return tag{}, fmt.Errorf("it has more than %d brackets within one another", maxNesting)
			}
		case strings.IndexByte(")]}", c) >= 0:
			nested--
		}
		i++
	}
	return tag{}, fmt.Errorf("a tag that begins with %q has no end", source[:min(len(source), 20)])
}

// end completes a tag whose closing delimiter is at source[i:].
func (t tag) end(source string, begin, i int) tag {
	t.text = source[:i+2]
	t.close = source[i : i+2]
	code := source[begin:i]
	if n := len(code) - 1; n >= 0 && (code[n] == '-' || code[n] == '+') {
		t.close = code[n:] + t.close
		code = code[:n]
	}
	t.parts = append(t.parts, code)
	return t
}

// literalEnd returns the position behind the string literal at source[i], or -1.
func literalEnd(source string, i int) int {
	for j := i + 1; j < len(source); j++ {
		switch source[j] {
		case '\\':
			j++
		case source[i]:
			return j + 1
		}
	}
	return -1
}

// word returns the keyword of a statement.
func (t tag) word() string {
	if !strings.HasPrefix(t.open, "{%") {
		return ""
	}
	if fields := strings.Fields(t.parts[0]); len(fields) > 0 {
		return fields[0]
	}
	return ""
}

// blocks returns by how much the tag changes the depth of blocks.
func (t tag) blocks() int {
	switch word := t.word(); {
	case strings.HasPrefix(word, "end"):
		return -1
	case word == "for", word == "if", word == "macro", word == "call", word == "filter", word == "generation":
		return 1
	}
	return 0
}

// note adds an expression for each filter and each test in the tag.
func (t tag) note(used map[string]bool) {
	for i := 0; i < len(t.parts); i += 2 {
		for _, match := range usedPattern.FindAllStringSubmatch(t.parts[i], -1) {
			if match[1] != "" && !filterPattern.MatchString(match[0]) {
				used["nothing|"+match[1]] = true
			} else if match[2] != "" {
				used["nothing is "+match[2]] = true
			}
		}
	}
}

// adapted returns the tag as the engine is to see it.
func (t tag) adapted() string {
	if t.open == "" {
		return t.text
	}
	var code strings.Builder
	for i, part := range t.parts {
		if i%2 == 0 {
			part = filterPattern.ReplaceAllString(part, "|msgl_$1")
			part = stripPattern.ReplaceAllString(part, ".$1("+nameSpace+")")
			// The engine ends a tag at the first pair of braces, even within a dict.
			part = strings.ReplaceAll(part, "}", "} ")
		}
		code.WriteString(part)
	}
	body := code.String()
	switch {
	case strings.HasPrefix(t.open, "{{"):
		body = " " + namePrint + "(" + body + ") "
	case t.word() == "macro":
		body = guardMacro(body)
	}
	return t.open + body + t.close
}

// guardMacro gives a macro one more parameter, whose default value is computed
// at each call and fails when the stack is deep.
func guardMacro(body string) string {
	end := strings.LastIndexByte(body, ')')
	begin := strings.IndexByte(body, '(')
	if begin < 0 || end < begin {
		return body
	}
	comma := ", "
	if strings.TrimSpace(body[begin+1:end]) == "" {
		comma = ""
	}
	return body[:end] + comma + "msgl_depth=" + nameGuard + "()" + body[end:]
}

// guard fails when a macro calls itself without end.
func guard([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	var pc [1]uintptr
	if runtime.Callers(maxStackFrames, pc[:]) > 0 {
		return jinja.Undefined(), errors.New("a macro calls itself too deeply")
	}
	return jinja.None(), nil
}
