package radix

import (
	"fmt"

	"github.com/minisgl/minisgl/go/internal/core"
)

// CheckIntegrity implements kvcache.PrefixCache.
func (c *Cache) CheckIntegrity(own func(core.Page)) error {
	var sum totals
	if err := c.checkNode(c.root, own, &sum); err != nil {
		return fmt.Errorf("radix: %w", err)
	}
	if sum != (totals{c.pages, c.locked, len(c.leaves), c.nodes}) {
		return fmt.Errorf("radix: counted %+v, but the books say %d pages, %d locked, %d leaves, %d nodes", sum, c.pages, c.locked, len(c.leaves), c.nodes)
	}
	for i, n := range c.leaves {
		if n.heapAt != i || i > 0 && c.leaves[(i-1)/2].used > n.used {
			return fmt.Errorf("radix: leaf %d of the heap is out of place", i)
		}
	}
	return nil
}

type totals struct{ pages, locked, leaves, nodes int }

func (c *Cache) checkNode(n *node, own func(core.Page), sum *totals) error {
	for _, p := range n.pages {
		own(p)
	}
	sum.pages += len(n.pages)
	if n.locks > 0 && n != c.root {
		sum.locked += len(n.pages)
	}
	if (n.heapAt >= 0) != (n.locks == 0 && len(n.children) == 0) {
		return fmt.Errorf("a node of %d pages with %d locks and %d children is at %d of the heap", len(n.pages), n.locks, len(n.children), n.heapAt)
	}
	if n.heapAt >= 0 {
		sum.leaves++
	}
	locks := 0
	for k, child := range n.children {
		if err := c.checkEdge(n, k, child); err != nil {
			return err
		}
		locks += child.locks
		sum.nodes++
		if err := c.checkNode(child, own, sum); err != nil {
			return err
		}
	}
	if locks > n.locks {
		return fmt.Errorf("a node has %d locks, those below it %d", n.locks, locks)
	}
	return nil
}

func (c *Cache) checkEdge(parent *node, k string, n *node) error {
	switch {
	case n.parent != parent:
		return fmt.Errorf("a child of %d pages has another parent", len(n.pages))
	case len(n.pages) == 0 || len(n.ids) != len(n.pages)*c.pageSize:
		return fmt.Errorf("a node has %d ids in %d pages of %d", len(n.ids), len(n.pages), c.pageSize)
	case key(n.ids[:c.pageSize]) != k:
		return fmt.Errorf("a child stands under a key that is not its first page")
	case n.used > parent.used:
		return fmt.Errorf("a child was used at %d, its parent at %d", n.used, parent.used)
	}
	return nil
}
