package radix

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/kvcache"
)

var _ kvcache.PrefixCache = (*Cache)(nil)

func check(t rapid.TB, c *Cache) {
	t.Helper()
	if err := c.CheckIntegrity(func(core.Page) {}); err != nil {
		t.Fatal(err)
	}
}

func TestMatchSplitsAndInsertKeepsWhatIsCached(t *testing.T) {
	c := New(2)
	if h := c.Insert([]int32{1, 2, 3, 4, 5, 6}, []core.Page{10, 11, 12}); !slices.Equal(h.Pages, []core.Page{10, 11, 12}) {
		t.Fatalf("first insert: %v", h.Pages)
	}
	// The match is cut to whole pages: 1 2 3 | 9 agrees in one page and a half.
	if h := c.Match([]int32{1, 2, 3, 9, 5, 6}); !slices.Equal(h.Pages, []core.Page{10}) {
		t.Errorf("match in the middle of a page: %v", h.Pages)
	}
	h := c.Insert([]int32{1, 2, 3, 4, 7, 8}, []core.Page{20, 11, 22})
	if diff := cmp.Diff([]core.Page{10, 11, 22}, h.Pages); diff != "" {
		t.Errorf("insert beside a branch (-want +got):\n%s", diff)
	}
	if c.Pages() != 4 || c.Evictable() != 4 || c.Nodes() != 4 {
		t.Errorf("%d pages, %d evictable, %d nodes, want 4, 4 and 4", c.Pages(), c.Evictable(), c.Nodes())
	}
	check(t, c)
}

func TestEvictTakesTheLeastRecentlyUsedUnlocked(t *testing.T) {
	c := New(1)
	old := c.Insert([]int32{1, 2}, []core.Page{0, 1})
	c.Insert([]int32{1, 3}, []core.Page{0, 2})
	c.Insert([]int32{4, 5, 6}, []core.Page{3, 4, 5})
	c.Match([]int32{1, 3})
	c.Lock(old)
	// 4 5 6 is the oldest that nobody locks; it loses its end first.
	for _, want := range [][]core.Page{{5}, {3, 4}, {2}, nil} {
		if got := c.Evict(max(1, len(want))); !slices.Equal(sorted(got), want) {
			t.Errorf("evicted %v, want %v", got, want)
		}
		check(t, c)
	}
	c.Unlock(old)
	if got := sorted(c.Evict(9)); !slices.Equal(got, []core.Page{0, 1}) || c.Pages() != 0 {
		t.Errorf("after unlocking: evicted %v, %d pages are left", got, c.Pages())
	}
	check(t, c)
}

func sorted(p []core.Page) []core.Page {
	slices.Sort(p)
	return p
}

// TestAgainstMap compares the tree with a map from each cached prefix to its
// last page.
func TestAgainstMap(t *testing.T) { rapid.Check(t, againstMap) }

// FuzzAgainstMap lets the fuzzer choose the operations.
func FuzzAgainstMap(f *testing.F) { f.Fuzz(rapid.MakeFuzz(againstMap)) }

func againstMap(t *rapid.T) {
	size := rapid.SampledFrom([]int{1, 2, 16}).Draw(t, "page size")
	m := &mapModel{c: New(size), size: size, cached: map[string]core.Page{}, locks: map[string]int{}}
	t.Repeat(map[string]func(*rapid.T){
		"insert": m.insert, "match": m.match, "evict": m.evict, "lock": m.lock, "unlock": m.unlock, "": m.check,
	})
}

type mapModel struct {
	c      *Cache
	size   int
	next   core.Page
	cached map[string]core.Page // by the prefix's ids
	locks  map[string]int       // by prefix: locks on it and on what extends it
	held   []held
}

type held struct {
	h   kvcache.Handle
	ids []int32
}

// draw makes sequences that often agree: few ids, long runs of one.
func (m *mapModel) draw(t *rapid.T) []int32 {
	var ids []int32
	for _, page := range rapid.SliceOfN(rapid.Int32Range(1, 3), 0, 6).Draw(t, "pages") {
		for range m.size {
			ids = append(ids, page)
		}
	}
	return ids
}

func (m *mapModel) prefixes(ids []int32) []string {
	var out []string
	for n := m.size; n <= len(ids); n += m.size {
		out = append(out, string([]byte(key(ids[:n]))))
	}
	return out
}

func (m *mapModel) insert(t *rapid.T) {
	ids := m.draw(t)
	var pages, want []core.Page
	for _, p := range m.prefixes(ids) {
		page := m.next
		m.next++
		if have, ok := m.cached[p]; ok {
			want = append(want, have)
		} else {
			m.cached[p] = page
			want = append(want, page)
		}
		pages = append(pages, page)
	}
	if h := m.c.Insert(ids, pages); !slices.Equal(h.Pages, want) {
		t.Fatalf("insert: pages %v, want %v", h.Pages, want)
	}
}

func (m *mapModel) match(t *rapid.T) {
	ids := append(m.draw(t), rapid.SliceOfN(rapid.Int32Range(1, 3), 0, 3).Draw(t, "tail")...)
	if got, want := m.c.Match(ids).Pages, m.want(ids); !slices.Equal(got, want) {
		t.Fatalf("match: %v, want %v", got, want)
	}
}

func (m *mapModel) want(ids []int32) []core.Page {
	var want []core.Page
	for _, p := range m.prefixes(ids) {
		page, ok := m.cached[p]
		if !ok {
			break
		}
		want = append(want, page)
	}
	return want
}

func (m *mapModel) lock(t *rapid.T) {
	ids := m.draw(t)
	h := m.c.Match(ids)
	m.c.Lock(h)
	ids = ids[:len(h.Pages)*m.size]
	m.held = append(m.held, held{h, ids})
	for _, p := range m.prefixes(ids) {
		m.locks[p]++
	}
}

func (m *mapModel) unlock(t *rapid.T) {
	if len(m.held) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.held)-1).Draw(t, "which")
	m.c.Unlock(m.held[i].h)
	for _, p := range m.prefixes(m.held[i].ids) {
		m.locks[p]--
	}
	m.held = slices.Delete(m.held, i, i+1)
}

func (m *mapModel) evictable() int {
	n := 0
	for p := range m.cached {
		if m.locks[p] == 0 {
			n++
		}
	}
	return n
}

func (m *mapModel) evict(t *rapid.T) {
	n := rapid.IntRange(0, 5).Draw(t, "n")
	want := min(n, m.evictable())
	out := m.c.Evict(n)
	if len(out) != want {
		t.Fatalf("evicted %d pages of %d asked for, want %d", len(out), n, want)
	}
	for p, page := range m.cached {
		if slices.Contains(out, page) {
			if m.locks[p] > 0 {
				t.Fatalf("evicted page %d, which is locked", page)
			}
			delete(m.cached, p)
		}
	}
	for p := range m.cached {
		if parent := p[:len(p)-4*m.size]; parent != "" {
			if _, ok := m.cached[parent]; !ok {
				t.Fatalf("a prefix is cached whose own prefix is gone")
			}
		}
	}
}

func (m *mapModel) check(t *rapid.T) {
	check(t, m.c)
	if m.c.Pages() != len(m.cached) || m.c.Evictable() != m.evictable() {
		t.Fatalf("%d pages, %d evictable, want %d and %d", m.c.Pages(), m.c.Evictable(), len(m.cached), m.evictable())
	}
}
