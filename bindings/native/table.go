package native

import "sync"

// table gives numbers to values, for callers that can hold numbers only. A
// number is never used twice.
type table[T any] struct {
	mu     sync.Mutex
	last   int64
	values map[int64]T
}

var (
	engines table[*engine]
	tasks   table[*task]
)

func (t *table[T]) add(v T) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.values == nil {
		t.values = map[int64]T{}
	}
	t.last++
	t.values[t.last] = v
	return t.last
}

func (t *table[T]) get(id int64) (T, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.values[id]
	return v, ok
}

func (t *table[T]) remove(id int64) (T, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.values[id]
	delete(t.values, id)
	return v, ok
}

func (t *table[T]) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.values)
}

func engineOf(id int64) (*engine, error) {
	e, ok := engines.get(id)
	if !ok {
		return nil, shutDown()
	}
	return e, nil
}

func taskOf(id int64) (*task, error) {
	t, ok := tasks.get(id)
	if !ok {
		return nil, fail(kindInternal, "no job has number %d", id)
	}
	return t, nil
}
