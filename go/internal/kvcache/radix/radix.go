// Package radix is the prefix cache that shares: a radix tree over token ids
// whose edges hold the KV pages of finished prompts. All lengths are whole pages;
// the pages of unlocked leaves are evicted least recently used first.
package radix

import (
	"container/heap"
	"unsafe"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/kvcache"
)

// Cache implements kvcache.PrefixCache. It is not safe for concurrent use.
type Cache struct {
	pageSize int
	root     *node
	leaves   leafHeap // unlocked leaves, the least recently used first
	clock    uint64
	pages    int // owned
	nodes    int // without the root
	locked   int // owned and locked
}

// node is an edge of the tree with what hangs on it: a run of tokens, whole
// pages long, and their pages. The root has none.
type node struct {
	parent   *node
	children map[string]*node // by the bytes of their first page's ids
	ids      []int32
	pages    []core.Page
	locks    int // of this node and of all below it
	used     uint64
	heapAt   int // place in Cache.leaves, -1: not there
}

// New returns an empty cache for pages of pageSize tokens.
func New(pageSize int) *Cache {
	return &Cache{pageSize: pageSize, root: &node{locks: 1, heapAt: -1}}
}

// Pages implements kvcache.PrefixCache.
func (c *Cache) Pages() int { return c.pages }

// Nodes implements kvcache.PrefixCache.
func (c *Cache) Nodes() int { return c.nodes }

// Evictable implements kvcache.PrefixCache. Since a lock reaches to the root, an
// unlocked node has only unlocked ones below it, and all of them can go.
func (c *Cache) Evictable() int { return c.pages - c.locked }

// Match implements kvcache.PrefixCache. It splits an edge that matches in part,
// so that the handle ends at a node.
func (c *Cache) Match(ids []int32) kvcache.Handle {
	c.clock++
	n, _ := c.descend(ids)
	return c.handle(n)
}

// descend walks down ids as far as they are cached, marks the path as used and
// returns its last node and the number of ids on it.
func (c *Cache) descend(ids []int32) (*node, int) {
	at, n := 0, c.root
	for {
		n.used = c.clock
		if n.heapAt >= 0 {
			heap.Fix(&c.leaves, n.heapAt)
		}
		if len(ids)-at < c.pageSize {
			return n, at
		}
		child, ok := n.children[key(ids[at:at+c.pageSize])]
		if !ok {
			return n, at
		}
		same := c.common(child.ids, ids[at:])
		at += same
		if same < len(child.ids) {
			child = c.split(child, same)
			child.used = c.clock
			return child, at
		}
		n = child
	}
}

// common is the length that a and b share from their start, in whole pages.
func (c *Cache) common(a, b []int32) int {
	n := min(len(a), len(b))
	i := 0
	for i < n && a[i] == b[i] {
		i++
	}
	return i - i%c.pageSize
}

// split cuts the first at ids off a node as a parent of its own and returns that
// parent. Handles to the node stay right: they mean the whole way up.
func (c *Cache) split(n *node, at int) *node {
	c.nodes++
	p := at / c.pageSize
	upper := &node{
		parent: n.parent, ids: n.ids[:at:at], pages: n.pages[:p:p],
		locks: n.locks, used: n.used, heapAt: -1,
	}
	n.parent.children[key(n.ids[:c.pageSize])] = upper
	n.ids, n.pages, n.parent = n.ids[at:], n.pages[p:], upper
	upper.children = map[string]*node{key(n.ids[:c.pageSize]): n}
	return upper
}

// handle returns the prefix that ends at n.
func (c *Cache) handle(n *node) kvcache.Handle {
	total := 0
	for m := n; m != nil; m = m.parent {
		total += len(m.pages)
	}
	h := kvcache.Handle{Pages: make([]core.Page, total), Node: n}
	for m := n; m != nil; m = m.parent {
		total -= len(m.pages)
		copy(h.Pages[total:], m.pages)
	}
	return h
}

// Lock implements kvcache.PrefixCache.
func (c *Cache) Lock(h kvcache.Handle) {
	for n := nodeOf(h); n != nil; n = n.parent {
		if n.locks == 0 {
			c.locked += len(n.pages)
			c.dropLeaf(n)
		}
		n.locks++
	}
}

// Unlock implements kvcache.PrefixCache.
func (c *Cache) Unlock(h kvcache.Handle) {
	for n := nodeOf(h); n != nil; n = n.parent {
		n.locks--
		if n.locks == 0 {
			c.locked -= len(n.pages)
			c.offerLeaf(n)
		}
	}
}

// nodeOf returns a handle's node; the zero Handle has none.
func nodeOf(h kvcache.Handle) *node {
	n, _ := h.Node.(*node)
	return n
}

// Insert implements kvcache.PrefixCache.
func (c *Cache) Insert(ids []int32, pages []core.Page) kvcache.Handle {
	c.clock++
	n, at := c.descend(ids)
	h := c.handle(n)
	if at == len(ids) {
		return h
	}
	leaf := &node{
		parent: n, ids: append([]int32(nil), ids[at:]...), pages: append([]core.Page(nil), pages[len(h.Pages):]...),
		used: c.clock, heapAt: -1,
	}
	c.dropLeaf(n)
	if n.children == nil {
		n.children = make(map[string]*node, 1)
	}
	n.children[key(leaf.ids[:c.pageSize])] = leaf
	c.pages += len(leaf.pages)
	c.nodes++
	c.offerLeaf(leaf)
	return kvcache.Handle{Pages: append(h.Pages, leaf.pages...), Node: leaf}
}

// Evict implements kvcache.PrefixCache. A leaf that holds more than is asked for
// loses only its last pages.
func (c *Cache) Evict(n int) []core.Page {
	var out []core.Page
	for len(out) < n && len(c.leaves) > 0 {
		leaf := c.leaves[0]
		keep := max(0, len(leaf.pages)-(n-len(out)))
		out = append(out, leaf.pages[keep:]...)
		c.pages -= len(leaf.pages) - keep
		if keep > 0 {
			leaf.pages, leaf.ids = leaf.pages[:keep], leaf.ids[:keep*c.pageSize]
			break
		}
		heap.Pop(&c.leaves)
		c.nodes--
		delete(leaf.parent.children, key(leaf.ids[:c.pageSize]))
		c.offerLeaf(leaf.parent)
	}
	return out
}

// offerLeaf makes a node evictable if it is an unlocked leaf.
func (c *Cache) offerLeaf(n *node) {
	if n.locks == 0 && len(n.children) == 0 && n.heapAt < 0 {
		heap.Push(&c.leaves, n)
	}
}

// dropLeaf takes a node out of the evictable ones.
func (c *Cache) dropLeaf(n *node) {
	if n.heapAt >= 0 {
		heap.Remove(&c.leaves, n.heapAt)
	}
}

// key views ids as a string. A node's ids are never written after Insert has
// copied them, so a view of them may stand as a map's key.
func key(ids []int32) string {
	return unsafe.String((*byte)(unsafe.Pointer(&ids[0])), len(ids)*int(unsafe.Sizeof(ids[0])))
}

// leafHeap orders evictable leaves by their last use.
type leafHeap []*node

func (h leafHeap) Len() int           { return len(h) }
func (h leafHeap) Less(i, j int) bool { return h[i].used < h[j].used }
func (h leafHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapAt, h[j].heapAt = i, j
}

// Push implements heap.Interface.
func (h *leafHeap) Push(x any) {
	n := x.(*node)
	n.heapAt = len(*h)
	*h = append(*h, n)
}

// Pop implements heap.Interface.
func (h *leafHeap) Pop() any {
	old := *h
	n := old[len(old)-1]
	n.heapAt = -1
	*h = old[:len(old)-1]
	return n
}
