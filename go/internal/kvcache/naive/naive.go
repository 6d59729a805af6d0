// Package naive is the prefix cache that keeps nothing.
package naive

import (
	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/kvcache"
)

// Cache implements kvcache.PrefixCache without sharing: every prompt is computed
// whole, and its pages are free again when the request ends.
type Cache struct{}

// New returns a Cache.
func New() Cache { return Cache{} }

func (Cache) Match([]int32) kvcache.Handle         { return kvcache.Handle{} }
func (Cache) Lock(kvcache.Handle)                  {}
func (Cache) Unlock(kvcache.Handle)                {}
func (Cache) Evict(int) []core.Page                { return nil }
func (Cache) Evictable() int                       { return 0 }
func (Cache) Pages() int                           { return 0 }
func (Cache) Nodes() int                           { return 0 }
func (Cache) CheckIntegrity(func(core.Page)) error { return nil }

func (Cache) Insert([]int32, []core.Page) kvcache.Handle { return kvcache.Handle{} }
