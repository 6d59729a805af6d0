package grammar

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// maxTries bounds how many parts of a bad schema are looked at.
const maxTries = 200

// locate says where in a schema an error is: in the innermost part that has the
// same error on its own. The library tells only what is wrong.
func (c *Compiler) locate(schema string, err error) error {
	var node map[string]json.RawMessage
	if json.Unmarshal([]byte(schema), &node) != nil {
		return err
	}
	shared := map[string]json.RawMessage{}
	for _, name := range []string{"$defs", "definitions"} {
		if defs, ok := node[name]; ok {
			shared[name] = defs
		}
	}
	path, tries := "", 0
	for found := true; found; {
		found = false
		all := parts(node)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if tries++; tries > maxTries {
				break
			}
			part := all[name]
			if text, e := json.Marshal(with(part, shared)); e == nil {
				if _, e := c.compile(source{"json_schema", jsonSpacing(string(text))}); e != nil && e.Error() == err.Error() {
					node, path, found = part, path+"/"+name, true
					break
				}
			}
		}
	}
	if path == "" {
		return err
	}
	return fmt.Errorf("at #%s: %w", path, err)
}

// with returns a schema with the definitions that its references may lead to.
func with(node, shared map[string]json.RawMessage) map[string]json.RawMessage {
	all := maps.Clone(shared)
	maps.Copy(all, node)
	return all
}

// parts returns the schemas that one consists of, by their paths in it.
func parts(node map[string]json.RawMessage) map[string]map[string]json.RawMessage {
	found := map[string]map[string]json.RawMessage{}
	add := func(path string, raw json.RawMessage) {
		var part map[string]json.RawMessage
		if json.Unmarshal(raw, &part) == nil && part != nil {
			found[path] = part
		}
	}
	for _, name := range []string{"properties", "patternProperties", "$defs", "definitions"} {
		var named map[string]json.RawMessage
		if json.Unmarshal(node[name], &named) == nil {
			for key, raw := range named {
				add(name+"/"+key, raw)
			}
		}
	}
	for _, name := range []string{"prefixItems", "anyOf", "oneOf", "allOf"} {
		var list []json.RawMessage
		if json.Unmarshal(node[name], &list) == nil {
			for i, raw := range list {
				add(fmt.Sprintf("%s/%d", name, i), raw)
			}
		}
	}
	add("items", node["items"])
	add("additionalProperties", node["additionalProperties"])
	return found
}
