package scheduler

import (
	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/kvcache"
)

// pages gives pages to requests and takes them back, with the free list and the
// prefix cache behind it.
//
// A request's Pages are, in order: those of its handle (the cache's, locked),
// then its own. All are in the request's hands until release.
type pages struct {
	pool  *kvcache.Pool
	cache kvcache.PrefixCache
	size  int
}

// needed is the number of pages that n tokens fill.
func (p *pages) needed(n int) int { return kvcache.PagesFor(n, p.size) }

// available is the number of pages that could be had: free or evictable.
func (p *pages) available() int { return p.pool.Free() + p.cache.Evictable() }

// attach gives a request the cached prefix of its prompt. At least one token is
// left to compute: its logits give the first token.
func (p *pages) attach(e *entry) {
	r := e.req
	e.handle = p.cache.Match(r.IDs[:r.PromptLen-1])
	p.cache.Lock(e.handle)
	r.Pages = append(r.Pages[:0], e.handle.Pages...)
	r.CachedLen = len(r.Pages) * p.size
	r.DeviceLen = r.CachedLen
}

// grow gives a request pages for n positions; admission has made sure that they
// can be had.
func (p *pages) grow(r *core.Req, n int) {
	want := p.needed(n) - len(r.Pages)
	if want <= 0 {
		return
	}
	if short := want - p.pool.Free(); short > 0 {
		p.pool.Give(p.cache.Evict(short))
	}
	r.Pages = p.pool.Take(r.Pages, want)
}

// release takes the pages of a request that has ended: full pages whose tokens
// are known are offered to the cache, the rest is free.
func (p *pages) release(e *entry) {
	r := e.req
	if len(r.Pages) == 0 {
		return
	}
	full := min(r.DeviceLen, len(r.IDs)) / p.size
	_, rest := p.cache.Insert(r.IDs[:full*p.size], r.Pages[:full])
	p.cache.Unlock(e.handle)
	if len(rest) > 0 {
		p.pool.Give(rest)
	}
	p.pool.Give(r.Pages[full:])
	r.Pages = nil
}

// check names the free list and the cache as owners of their pages.
func (p *pages) check(o *kvcache.Owners) error {
	p.pool.Each(o.Own("the free list"))
	if err := p.cache.CheckIntegrity(o.Own("the prefix cache")); err != nil {
		return err
	}
	return o.Check()
}
