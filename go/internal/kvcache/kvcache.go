// Package kvcache holds the books of the paged KV cache: which pages are free,
// and which belong to a prefix that later requests may share. It never sees the
// memory behind the pages.
//
// A page has exactly one owner at any time: the free list, the prefix cache, or
// one running request.
package kvcache

import (
	"fmt"

	"github.com/minisgl/minisgl/go/internal/core"
)

// Handle is a prefix that Match found: its pages, and a place in the cache that
// Lock and Unlock understand. The zero Handle is the empty prefix.
type Handle struct {
	Pages []core.Page // full pages; owned by the cache
	Node  any
}

// PrefixCache keeps the pages of finished prompts for requests that begin alike.
// Lengths are whole pages throughout.
type PrefixCache interface {
	// Match finds the longest cached prefix of ids.
	Match(ids []int32) Handle
	// Lock keeps a prefix from eviction until as many Unlocks.
	Lock(Handle)
	Unlock(Handle)
	// Insert offers the pages of ids, one for each whole page of it, and returns
	// what is now cached of ids. The cache has taken pages[i] where it is the
	// handle's page i; all others stay the caller's.
	Insert(ids []int32, pages []core.Page) Handle
	// Evict gives up at least n pages that nobody locks, the least recently used
	// first, or all there are.
	Evict(n int) []core.Page
	// Evictable is the number of pages that Evict could give up.
	Evictable() int
	// Pages is the number of pages that the cache owns.
	Pages() int
	// Nodes is the number of nodes of its tree, the root not counted.
	Nodes() int
	// CheckIntegrity walks the cache and reports the first broken rule. own is
	// called for each page that the cache owns.
	CheckIntegrity(own func(core.Page)) error
}

// Pool is the free list, last in, first out.
type Pool struct {
	free  []core.Page
	total int
}

// NewPool returns a pool that owns pages 0 … n-1, low numbers first.
func NewPool(n int) *Pool {
	p := &Pool{free: make([]core.Page, n), total: n}
	for i := range p.free {
		p.free[i] = core.Page(n - 1 - i)
	}
	return p
}

// Free is the number of free pages, Total the number of pages there are.
func (p *Pool) Free() int  { return len(p.free) }
func (p *Pool) Total() int { return p.total }

// Take moves n pages to the end of dst. It is a bug to take more than there are.
func (p *Pool) Take(dst []core.Page, n int) []core.Page {
	at := len(p.free) - n
	for i := len(p.free) - 1; i >= at; i-- {
		dst = append(dst, p.free[i])
	}
	p.free = p.free[:at]
	return dst
}

// Give returns pages to the pool; the first one given is taken first.
func (p *Pool) Give(pages []core.Page) {
	for i := len(pages) - 1; i >= 0; i-- {
		p.free = append(p.free, pages[i])
	}
}

// Each calls own for every free page.
func (p *Pool) Each(own func(core.Page)) {
	for _, page := range p.free {
		own(page)
	}
}

// PagesFor is the number of pages that n tokens fill.
func PagesFor(n, pageSize int) int { return (n + pageSize - 1) / pageSize }

// Owners proves that each of n pages has one owner: call its Own for every page
// of every owner, then Check.
type Owners struct {
	names []string
	err   error
}

// NewOwners expects pages 0 … n-1.
func NewOwners(n int) *Owners { return &Owners{names: make([]string, n)} }

// Own returns a function that records name as the owner of a page.
func (o *Owners) Own(name string) func(core.Page) {
	return func(p core.Page) {
		switch {
		case o.err != nil:
		case int(p) < 0 || int(p) >= len(o.names):
			o.err = fmt.Errorf("kvcache: %s owns page %d, but there are only %d", name, p, len(o.names))
		case o.names[p] != "":
			o.err = fmt.Errorf("kvcache: page %d belongs to %s and to %s", p, o.names[p], name)
		default:
			o.names[p] = name
		}
	}
}

// Check reports a page with two owners or none.
func (o *Owners) Check() error {
	for p, name := range o.names {
		if o.err == nil && name == "" {
			return fmt.Errorf("kvcache: page %d belongs to nobody", p)
		}
	}
	return o.err
}
