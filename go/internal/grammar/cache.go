package grammar

import "container/list"

const (
	maxTextBytes = 256 << 10 // of a grammar
	compileStack = 256 << 20 // bytes, of which the system gives what is used
	maxCached    = 128       // compiled grammars that are kept
	maxCachedSum = 1 << 20   // bytes of their texts together; each may take some hundred times as much
)

// source is a grammar in one of llguidance's languages.
type source struct{ kind, text string }

// cache keeps the grammars that were used last.
type cache struct {
	byText map[source]*list.Element // of *compiled
	order  *list.List               // the one used last in front
	bytes  int
}

func newCache() cache { return cache{byText: map[source]*list.Element{}, order: list.New()} }

func (c *cache) get(s source) *compiled {
	e, ok := c.byText[s]
	if !ok {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*compiled)
}

// put adds a grammar and drops those used longest ago, if there are too many. Their
// memory is freed when no matcher begins with them any more.
func (c *cache) put(g *compiled) {
	c.byText[g.source] = c.order.PushFront(g)
	c.bytes += len(g.source.text)
	for c.order.Len() > maxCached || c.bytes > maxCachedSum {
		old := c.order.Remove(c.order.Back()).(*compiled)
		delete(c.byText, old.source)
		c.bytes -= len(old.source.text)
	}
}
