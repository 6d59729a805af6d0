package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ardanlabs/jinja"
)

// maxDepth bounds how deep values from outside nest.
const maxDepth = 100

// converter makes template values of Go values. left is how many more bytes,
// roughly, the input of one rendering may have.
type converter struct{ left int }

func (c *converter) spend(n int) error {
	// Each value costs memory beside its text.
	const overhead = 16
	if c.left -= n + overhead; c.left < 0 {
		return fmt.Errorf("the input is larger than the %d bytes allowed", maxOutputBytes)
	}
	return nil
}

// value converts v at a depth of nesting. A json.RawMessage, and anything that
// is not a plain JSON value, goes through JSON with its keys in order.
func (c *converter) value(v any, depth int) (jinja.Value, error) {
	if depth > maxDepth {
		return jinja.None(), fmt.Errorf("it nests deeper than the %d levels allowed", maxDepth)
	}
	if err := c.spend(0); err != nil {
		return jinja.None(), err
	}
	switch v := v.(type) {
	case nil:
		return jinja.None(), nil
	case jinja.Value:
		return v, nil
	case bool, int, int64, float64, json.Number:
		return jinja.FromGoValue(v), nil
	case string:
		return jinja.NewString(v), c.spend(len(v))
	case []any:
		return c.list(v, depth)
	case map[string]any:
		return c.dict(v, depth)
	case json.RawMessage:
		return c.raw(v, depth)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return jinja.None(), fmt.Errorf("it is no JSON value: %w", err)
	}
	return c.raw(data, depth)
}

func (c *converter) list(items []any, depth int) (jinja.Value, error) {
	out := make([]jinja.Value, len(items))
	for i, item := range items {
		var err error
		if out[i], err = c.value(item, depth+1); err != nil {
			return jinja.None(), err
		}
	}
	return jinja.NewList(out), nil
}

// dict converts a Go map, which has no order, with its keys sorted.
func (c *converter) dict(m map[string]any, depth int) (jinja.Value, error) {
	out := jinja.NewDict()
	for _, key := range sortedKeys(m) {
		value, err := c.value(m[key], depth+1)
		if err != nil {
			return jinja.None(), err
		}
		out.AsDict().Set(key, value)
	}
	return out, c.spend(len(m))
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// raw converts JSON text and keeps the order of keys.
func (c *converter) raw(data []byte, depth int) (jinja.Value, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := c.next(dec, depth)
	if err != nil {
		return jinja.None(), fmt.Errorf("invalid JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return jinja.None(), errors.New("invalid JSON: there is more behind the value")
	}
	return v, nil
}

// next reads one JSON value from dec.
func (c *converter) next(dec *json.Decoder, depth int) (jinja.Value, error) {
	tok, err := dec.Token()
	if err != nil {
		return jinja.None(), err
	}
	delim, ok := tok.(json.Delim)
	if !ok {
		return c.value(tok, depth)
	}
	if depth > maxDepth {
		return jinja.None(), fmt.Errorf("it nests deeper than the %d levels allowed", maxDepth)
	}
	v := jinja.NewList(nil)
	if delim == '{' {
		v = jinja.NewDict()
	}
	for dec.More() {
		if v.IsList() {
			item, err := c.next(dec, depth+1)
			if err != nil {
				return jinja.None(), err
			}
			v.AsList().Append(item)
			continue
		}
		key, err := dec.Token()
		if err != nil {
			return jinja.None(), err
		}
		item, err := c.next(dec, depth+1)
		if err != nil {
			return jinja.None(), err
		}
		v.AsDict().Set(key.(string), item)
	}
	_, err = dec.Token() // the closing delimiter
	return v, err
}
