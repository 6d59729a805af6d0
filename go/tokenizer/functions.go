package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ardanlabs/jinja"
)

type function = func(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error)

// templateFuncs returns the functions, filters and values of the environment
// in which transformers renders chat templates, as far as the engine lacks
// them or differs. now is the clock.
func templateFuncs(now func() time.Time) map[string]jinja.Value {
	vars := map[string]jinja.Value{nameSpace: jinja.NewString(pythonSpace)}
	for name, f := range map[string]function{
		nameToJSON:        toJSON,
		nameTrim:          trim,
		namePrint:         printed,
		nameGuard:         guard,
		"range":           boundedRange,
		"raise_exception": raiseException,
		"strftime_now": func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
			if len(args) != 1 || !args[0].IsString() {
				return jinja.None(), errors.New("strftime_now: want one string, the format")
			}
			return jinja.NewString(strftime(now(), args[0].AsString())), nil
		},
	} {
		vars[name] = jinja.NewCallable(name, f)
	}
	return vars
}

func raiseException(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) != 1 {
		return jinja.None(), errors.New("raise_exception: want one argument, the message")
	}
	return jinja.None(), &TemplateError{Message: pythonStr(args[0])}
}

func boundedRange(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	bounds := [3]int64{0, 0, 1}
	for i, arg := range args {
		if !arg.IsInt() || i == len(bounds) {
			return jinja.None(), errors.New("range: want one to three whole numbers")
		}
		bounds[i] = arg.AsInt()
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if len(args) == 1 {
		start, stop = 0, start
	}
	if len(args) == 0 || step == 0 {
		return jinja.None(), errors.New("range: want one to three whole numbers and no step of zero")
	}
	var items []jinja.Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(items) == maxRange {
			return jinja.None(), fmt.Errorf("range: more than the %d items allowed", maxRange)
		}
		items = append(items, jinja.NewInt(i))
	}
	return jinja.NewList(items), nil
}

// pythonSpace are the characters for which Python's str.isspace holds.
var pythonSpace = func() string {
	var out strings.Builder
	for r := rune(0); r <= 0x3000; r++ {
		if unicode.IsSpace(r) || r >= 0x1C && r <= 0x1F {
			out.WriteRune(r)
		}
	}
	return out.String()
}()

//nolint:unparam // the signature of a filter
func trim(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	cut := pythonSpace
	chars, ok := kwargs["chars"]
	if len(args) > 1 {
		chars, ok = args[1], true
	}
	if ok && chars.IsString() {
		cut = chars.AsString()
	}
	return jinja.NewString(strings.Trim(pythonStr(args[0]), cut)), nil
}

func printed(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) != 1 {
		return jinja.None(), errors.New("an output tag wants one value")
	}
	return jinja.NewString(pythonStr(args[0])), nil
}

// pythonStr writes v as Python's str does; an undefined value is empty.
func pythonStr(v jinja.Value) string {
	switch {
	case v.IsString():
		return v.AsString()
	case v.IsUndefined():
		return ""
	}
	var out strings.Builder
	pythonRepr(&out, v)
	return out.String()
}

// pythonRepr writes v as Python's repr does.
func pythonRepr(out *strings.Builder, v jinja.Value) {
	switch {
	case v.IsString():
		out.WriteString(quotePython(v.AsString()))
	case v.IsFloat():
		out.WriteString(pythonFloat(v.AsFloat()))
	case v.IsList():
		out.WriteByte('[')
		for i, item := range v.AsList().Items {
			if i > 0 {
				out.WriteString(", ")
			}
			pythonRepr(out, item)
		}
		out.WriteByte(']')
	case v.IsDict():
		out.WriteByte('{')
		for i, key := range v.AsDict().Keys {
			if i > 0 {
				out.WriteString(", ")
			}
			out.WriteString(quotePython(key) + ": ")
			pythonRepr(out, v.AsDict().Data[key])
		}
		out.WriteByte('}')
	default:
		out.WriteString(v.String())
	}
}

// quotePython writes s as a Python string literal: in single quotes unless
// only these occur in it.
func quotePython(s string) string {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	out := []byte{quote}
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			out = append(out, '\\', byte(r))
		case r == '\n':
			out = append(out, `\n`...)
		case r == '\r':
			out = append(out, `\r`...)
		case r == '\t':
			out = append(out, `\t`...)
		case r == ' ' || unicode.IsPrint(r):
			out = append(out, string(r)...)
		case r < 0x100:
			out = fmt.Appendf(out, `\x%02x`, r)
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = fmt.Appendf(out, `\U%08x`, r)
		}
	}
	return string(append(out, quote))
}

// pythonFloat writes f as Python does: the shortest digits that read back,
// with an exponent from 1e16 on and below 1e-4.
func pythonFloat(f float64) string {
	switch size := math.Abs(f); {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+")
	case size >= 1e16 || size != 0 && size < 1e-4:
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// toJSON is the filter tojson of transformers: Python's json.dumps with
// ensure_ascii off by default and none of Jinja's escapes for HTML.
func toJSON(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	w := jsonWriter{item: ", ", key: ": "}
	option := func(at int, name string) (jinja.Value, bool) {
		v, ok := kwargs[name]
		if at < len(args) {
			v, ok = args[at], true
		}
		return v, ok && !v.IsNone() && !v.IsUndefined()
	}
	if v, ok := option(1, "ensure_ascii"); ok {
		w.ascii = v.IsTruthy()
	}
	if v, ok := option(2, "indent"); ok {
		w.item, w.lines = ",", true
		switch {
		case v.IsInt():
			w.indent = strings.Repeat(" ", int(min(max(v.AsInt(), 0), 64)))
		case v.IsString():
			w.indent = v.AsString()
		}
	}
	if v, ok := option(3, "separators"); ok {
		if !v.IsList() || v.AsList().Len() != 2 {
			return jinja.None(), errors.New("tojson: separators must be two strings")
		}
		w.item, w.key = pythonStr(v.AsList().Get(0)), pythonStr(v.AsList().Get(1))
	}
	if v, ok := option(4, "sort_keys"); ok {
		w.sort = v.IsTruthy()
	}
	if err := w.write(args[0], "\n"); err != nil {
		return jinja.None(), err
	}
	return jinja.NewString(w.out.String()), nil
}

// jsonWriter writes JSON as Python's json.dumps does.
type jsonWriter struct {
	out                strings.Builder
	item, key, indent  string
	lines, ascii, sort bool
}

// write writes v. newline begins a line at the indent of v itself.
func (w *jsonWriter) write(v jinja.Value, newline string) error {
	switch {
	case v.IsString():
		w.string(v.AsString())
	case v.IsNone():
		w.out.WriteString("null")
	case v.IsBool():
		w.out.WriteString(strconv.FormatBool(v.AsBool()))
	case v.IsInt():
		w.out.WriteString(strconv.FormatInt(v.AsInt(), 10))
	case v.IsFloat():
		w.out.WriteString(jsonFloat(v.AsFloat()))
	case v.IsList():
		items := v.AsList().Items
		return w.nest('[', ']', len(items), newline, func(i int, inner string) error {
			return w.write(items[i], inner)
		})
	case v.IsDict():
		keys := v.AsDict().Keys
		if w.sort {
			keys = slices.Sorted(slices.Values(keys))
		}
		return w.nest('{', '}', len(keys), newline, func(i int, inner string) error {
			w.string(keys[i])
			w.out.WriteString(w.key)
			return w.write(v.AsDict().Data[keys[i]], inner)
		})
	default:
		return errors.New("tojson: the value is undefined or a function, which JSON cannot hold")
	}
	return nil
}

// nest writes n items between brackets.
func (w *jsonWriter) nest(open, shut byte, n int, newline string, item func(i int, inner string) error) error {
	w.out.WriteByte(open)
	inner := newline + w.indent
	for i := range n {
		if i > 0 {
			w.out.WriteString(w.item)
		}
		if w.lines {
			w.out.WriteString(inner)
		}
		if err := item(i, inner); err != nil {
			return err
		}
	}
	if w.lines && n > 0 {
		w.out.WriteString(newline)
	}
	w.out.WriteByte(shut)
	return nil
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return pythonFloat(f)
}

var jsonEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

// string writes s as a JSON string.
func (w *jsonWriter) string(s string) {
	w.out.WriteByte('"')
	for _, r := range s {
		escape, ok := jsonEscapes[r]
		switch {
		case ok:
			w.out.WriteString(escape)
		case r < 0x20 || w.ascii && r > 0x7E && r < 0x10000:
			fmt.Fprintf(&w.out, `\u%04x`, r)
		case w.ascii && r >= 0x10000:
			r -= 0x10000
			fmt.Fprintf(&w.out, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			w.out.WriteRune(r)
		}
	}
	w.out.WriteByte('"')
}
