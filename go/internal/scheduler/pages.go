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

// attach gives a request the cached prefix of its sequence. At least one token is
// left to compute: its logits give the next token. So are positions whose logits
// are wanted for the log-probabilities of the prompt.
func (p *pages) attach(e *entry) {
	r := e.req
	most := len(r.IDs) - 1
	if r.Params.PromptLogprobs != nil && e.scored < r.PromptLen-1 {
		most = min(most, e.scored)
	}
	e.handle = p.cache.Match(r.IDs[:most])
	p.cache.Lock(e.handle)
	r.Pages = append(r.Pages[:0], e.handle.Pages...)
	r.DeviceLen = len(r.Pages) * p.size
	e.computed = r.DeviceLen
	if !e.preempted { // what a request left in the cache itself does not count
		r.CachedLen = r.DeviceLen
	}
}

// detach undoes attach.
func (p *pages) detach(e *entry) {
	p.cache.Unlock(e.handle)
	e.handle = kvcache.Handle{}
	e.req.Pages = e.req.Pages[:0]
	e.req.DeviceLen, e.computed = 0, 0
}

// grow gives a request pages for n positions, or reports that there are too few
// to leave spare ones to be had.
func (p *pages) grow(r *core.Req, n, spare int) bool {
	want := p.needed(n) - len(r.Pages)
	if want <= 0 {
		return true
	}
	if want+spare > p.available() {
		return false
	}
	if short := want - p.pool.Free(); short > 0 {
		p.pool.Give(p.cache.Evict(short))
	}
	r.Pages = p.pool.Take(r.Pages, want)
	return true
}

// shrink takes back what a request has beyond the pages of its DeviceLen.
func (p *pages) shrink(r *core.Req) {
	keep := p.needed(r.DeviceLen)
	p.pool.Give(r.Pages[keep:])
	r.Pages = r.Pages[:keep]
}

// publish offers the full pages of what a running request has computed to the
// cache, so that others can use them from now on. Where the cache has them
// already, the request goes on with the cache's and frees its own: the contents
// are the same to the bit.
func (p *pages) publish(e *entry) {
	r := e.req
	full := min(e.computed, len(r.IDs)) / p.size
	if full <= len(e.handle.Pages) {
		return
	}
	h := p.cache.Insert(r.IDs[:full*p.size], r.Pages[:full])
	p.cache.Lock(h)
	p.cache.Unlock(e.handle)
	p.giveDuplicates(h, r.Pages)
	copy(r.Pages, h.Pages)
	e.handle = h
}

// giveDuplicates frees the pages that a request offered and the cache did not
// take.
func (p *pages) giveDuplicates(h kvcache.Handle, pages []core.Page) {
	for i, page := range h.Pages {
		if pages[i] != page {
			p.pool.Give(pages[i : i+1])
		}
	}
}

// release takes the pages of a request that leaves: full pages whose tokens are
// computed and known are offered to the cache, the rest is free.
func (p *pages) release(e *entry) {
	r := e.req
	full := min(e.computed, len(r.IDs)) / p.size
	h := kvcache.Handle{}
	if full > 0 {
		h = p.cache.Insert(r.IDs[:full*p.size], r.Pages[:full])
	}
	p.giveDuplicates(h, r.Pages)
	p.pool.Give(r.Pages[len(h.Pages):])
	p.cache.Unlock(e.handle)
	e.handle = kvcache.Handle{}
	r.Pages = r.Pages[:0]
}

// reset gives the cache's unused pages back to the free list.
func (p *pages) reset() int {
	n := p.cache.Evictable()
	p.pool.Give(p.cache.Evict(n))
	return n
}

// check names the free list and the cache as owners of their pages.
func (p *pages) check(o *kvcache.Owners) error {
	p.pool.Each(o.Own("the free list"))
	if err := p.cache.CheckIntegrity(o.Own("the prefix cache")); err != nil {
		return err
	}
	return o.Check()
}
