package grammar

// #include <pthread.h>
// #include <stdlib.h>
// #include "llguidance.h"
//
// typedef struct {
//   LlgConstraintInit init;
//   const char *kind, *text;
//   LlgMatcher *result;
// } compilation;
//
// static void *compile(void *job) {
//   compilation *c = job;
//   c->result = llg_new_matcher(&c->init, c->kind, c->text);
//   return NULL;
// }
//
// // Compiles a grammar; NULL if there is no thread to do it. The library goes as deep
// // as references lead, up to 16 kB each, so the thread has a stack for the longest
// // chain that a text of the largest size holds.
// static LlgMatcher *new_matcher(const LlgTokenizer *tok, const char *kind, const char *text, size_t stack) {
//   compilation c = {.kind = kind, .text = text};
//   llg_constraint_init_set_defaults(&c.init, tok);
//   c.init.log_buffer_level = c.init.log_stderr_level = 0;
//   c.init.limits.verbose_errors = false;
//   pthread_attr_t attr;
//   pthread_t thread;
//   if (pthread_attr_init(&attr) != 0) return NULL;
//   int code = pthread_attr_setstacksize(&attr, stack);
//   if (code == 0) code = pthread_create(&thread, &attr, compile, &c);
//   pthread_attr_destroy(&attr);
//   if (code != 0) return NULL;
//   pthread_join(thread, NULL);
//   return c.result;
// }
import "C"

import (
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/minisgl/minisgl/go/internal/core"
)

// compiled is a grammar that matchers begin with.
type compiled struct {
	source source
	owner  *Compiler
	mu     sync.Mutex // of first
	first  *C.LlgMatcher
}

// lookup returns a compiled grammar, that of the cache if it is there. One is
// compiled at a time, whatever many callers ask for.
func (c *Compiler) lookup(s source) (*compiled, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.cache.get(s); g != nil {
		return g, nil
	}
	g, err := c.compile(s)
	if err == nil {
		c.cache.put(g)
	} else if s.kind == "json_schema" {
		err = c.locate(s.text, err)
	}
	return g, err
}

func (c *Compiler) compile(s source) (*compiled, error) {
	kind, text := C.CString(s.kind), C.CString(s.text)
	defer C.free(unsafe.Pointer(kind))
	defer C.free(unsafe.Pointer(text))
	g := &compiled{source: s, owner: c, first: C.new_matcher(c.tok, kind, text, compileStack)}
	if g.first == nil {
		return nil, errors.New("there is no memory to compile it now")
	}
	runtime.AddCleanup(g, free, g.first)
	mask := make([]C.uint32_t, (c.size+31)/32)
	if C.llg_matcher_compute_mask_into(g.first, unsafe.SliceData(mask), C.size_t(4*len(mask))) != 0 {
		return nil, failure(g.first) // it can't be compiled, or nothing fits it
	}
	return g, nil
}

func free(m *C.LlgMatcher) { C.llg_free_matcher(m) }

// start returns a matcher at the grammar's beginning.
func (g *compiled) start() (*matcher, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := &matcher{grammar: g, state: C.llg_clone_matcher(g.first)}
	m.cleanup = runtime.AddCleanup(m, free, m.state)
	return m, failure(m.state)
}

// matcher implements core.Matcher. Requests that are refused leave theirs to the
// garbage collector.
type matcher struct {
	grammar *compiled
	state   *C.LlgMatcher // nil after Close
	taken   int           // tokens of the output that it has seen
	cleanup runtime.Cleanup
}

var errClosed = errors.New("grammar: the matcher is closed")

// Mask implements core.Matcher.
func (m *matcher) Mask(dst, output []int32) error {
	if m.state == nil {
		return errClosed
	}
	if !m.take(output) {
		return m.broken()
	}
	if C.llg_matcher_compute_mask_into(m.state, (*C.uint32_t)(unsafe.Pointer(&dst[0])), C.size_t(4*len(dst))) != 0 {
		return m.broken()
	}
	return nil
}

// Forced implements core.Matcher. llguidance's masks allow the first of the tokens
// that it would go forward by and no other. Which come after that one may change when
// it is taken, so they are asked for again.
func (m *matcher) Forced(output []int32) (token int32, ok bool) {
	if m.state == nil || !m.take(output) {
		return 0, false
	}
	if C.llg_matcher_is_stopped(m.state) {
		return m.grammar.owner.end, failure(m.state) == nil
	}
	n := C.llg_matcher_compute_ff_tokens(m.state, (*C.uint32_t)(unsafe.Pointer(&token)), 1)
	return token, n == 1
}

// take lets the library see what is new of the output.
func (m *matcher) take(output []int32) bool {
	if fresh := output[m.taken:]; len(fresh) > 0 {
		if C.llg_matcher_consume_tokens(m.state, (*C.uint32_t)(unsafe.Pointer(&fresh[0])), C.size_t(len(fresh))) != 0 {
			return false
		}
		m.taken = len(output)
	}
	return true
}

func (m *matcher) broken() error {
	return fmt.Errorf("grammar: the output can't go on: %w", failure(m.state))
}

// Close implements core.Matcher.
func (m *matcher) Close() {
	if m.state != nil {
		m.cleanup.Stop()
		free(m.state)
		m.state = nil
	}
}

// failure is what is wrong with a matcher, if anything is.
func failure(m *C.LlgMatcher) error {
	if message := C.llg_matcher_get_error(m); message != nil {
		return errors.New(cause(C.GoString(message)))
	}
	return nil
}

// cause is the library's message without what is only of use to its authors.
func cause(message string) string {
	const longest = 600
	message, _, _ = strings.Cut(message, "\n<")
	message = strings.Join(strings.Fields(trace.ReplaceAllString(message, "")), " ")
	switch {
	case strings.HasPrefix(message, "panic:"):
		return "the grammar library failed on it; simplify it"
	case message == "NoExtensionBias":
		return "no output fits it"
	case len(message) > longest:
		message = strings.ToValidUTF8(message[:longest], "") + "..."
	}
	return message
}

// trace is where in the library an error came from, by way of which reference of a
// schema, of which locate tells the place, and a picture of it.
var trace = regexp.MustCompile(`(?s)\n+(Stack backtrace:.*|\s*while processing \S+|\s*\d+ \| .*)`)

var _ core.Matcher = (*matcher)(nil)
