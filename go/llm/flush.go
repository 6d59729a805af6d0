package llm

// FlushCache empties the prefix cache, but for the pages that running requests
// use, and returns how many pages that freed. ErrClosed means that the engine has
// ended.
func (l *LLM) FlushCache() (pages int, err error) {
	count := make(chan int, 1)
	if !l.send(command{kind: flushCache, count: count}) {
		return 0, ErrClosed
	}
	return <-count, nil
}
