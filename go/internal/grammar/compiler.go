package grammar

// #include <stdlib.h>
// #include <string.h>
// #include "llguidance.h"
//
// extern size_t minisglTokenize(void *, uint8_t *, size_t, uint32_t *, size_t);
//
// static size_t tokenize(const void *user, const uint8_t *text, size_t n, uint32_t *out, size_t room) {
//   return minisglTokenize((void *)user, (uint8_t *)text, n, out, room);
// }
//
// // Sets of tokens that a mask takes whole, where a grammar allows all of a set's texts,
// // instead of looking at each: letters, and what a JSON string may hold.
// #define IN_STRING "[^\"\\\\\\x00-\\x1F\\x7F]"
// static const char *const slices[] = {
//   "[\\x20\\x0A\\x0D\\x09]+", "[a-z]{1,30}", "[A-Za-z ]{1,30}", IN_STRING "{1,10}", IN_STRING "{1,30}", IN_STRING "+", NULL,
// };
//
// // A struct that holds pointers into Go's memory may not cross into C, so it is
// // filled here.
// static LlgTokenizer *new_tokenizer(uint32_t vocab, const uint32_t *lens, const uint8_t *bytes, const uint32_t *eos,
//                                    uint32_t neos, int exact, const void *user, char *error, size_t room) {
//   LlgTokenizerInitV2 init = {.struct_size = sizeof init, .vocab_size = vocab, .token_lens = lens, .token_bytes = bytes};
//   init.tok_eos = neos > 0 ? eos[0] : UINT32_MAX;
//   init.tok_eos_extra = neos > 1 ? eos + 1 : NULL;
//   init.tok_eos_extra_count = neos > 1 ? neos - 1 : 0;
//   init.tokenize_assumes_string = exact;
//   init.use_approximate_greedy_tokenize_fn = !exact;
//   init.tokenize_fn = exact ? tokenize : NULL;
//   init.tokenize_user_data = user;
//   init.slices = slices;
//   return llg_new_tokenizer_v2(&init, error, room);
// }
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/cgo"
	"sync"
	"unsafe"

	"github.com/minisgl/minisgl/go/internal/core"
)

// Vocabulary is what a Compiler needs of a tokenizer.
type Vocabulary interface {
	// TokenBytes returns the bytes that a token stands for; none for ids without one.
	TokenBytes(id int32) []byte
	// IsSpecial tells a token that no text spells.
	IsSpecial(id int32) bool
	// Encode returns the tokens of a text, without any that the model puts around it.
	Encode(text string, addSpecial bool) ([]int32, error)
}

// Compiler compiles grammars for one vocabulary. It is safe for concurrent use.
type Compiler struct {
	size  int   // ids that there are masks for
	end   int32 // a token that ends a sequence
	tok   *C.LlgTokenizer
	mu    sync.Mutex
	cache cache
}

// specialMark is how llguidance tells a special token's name from text.
const specialMark = 0xFF

// New returns a compiler for the tokens below size; ends are those that end a
// sequence.
func New(v Vocabulary, size int, ends []int32) (*Compiler, error) {
	lens, bytes := make([]uint32, size), []byte{}
	for id := range size {
		token := v.TokenBytes(int32(id))
		if v.IsSpecial(int32(id)) {
			token = append([]byte{specialMark}, token...)
		}
		lens[id], bytes = uint32(len(token)), append(bytes, token...)
	}
	var eos []uint32
	for _, id := range ends {
		if id >= 0 && int(id) < size {
			eos = append(eos, uint32(id))
		}
	}
	if len(eos) == 0 {
		return nil, errors.New("grammar: the model has no end-of-sequence token, which an output by a grammar ends with")
	}
	s := newSpeller(v, size)
	user, exact := s.export()
	var message [512]C.char
	tok := C.new_tokenizer(C.uint32_t(size), (*C.uint32_t)(unsafe.SliceData(lens)), (*C.uint8_t)(unsafe.SliceData(bytes)),
		(*C.uint32_t)(unsafe.SliceData(eos)), C.uint32_t(len(eos)), C.int(exact), user, &message[0], C.size_t(len(message)))
	if tok == nil {
		release(user)
		return nil, fmt.Errorf("grammar: %s", cause(C.GoString(&message[0])))
	}
	c := &Compiler{size: size, end: int32(eos[0]), tok: tok, cache: newCache()}
	runtime.AddCleanup(c, func(tok *C.LlgTokenizer) {
		C.llg_free_tokenizer(tok)
		release(user)
	}, tok)
	return c, nil
}

// Matcher compiles a grammar, unless that was done lately, and returns a matcher
// at its beginning. The error of a grammar that can't be compiled is an
// InvalidError.
func (c *Compiler) Matcher(g core.Grammar) (core.Matcher, error) {
	s, err := translate(g)
	if err != nil {
		return nil, core.Invalid(g.Name(), "%v", err)
	}
	compiled, err := c.lookup(s)
	if err != nil {
		return nil, core.Invalid(g.Name(), "%v", err)
	}
	return compiled.start()
}

// release frees what export allocated.
func release(user unsafe.Pointer) {
	(*cgo.Handle)(user).Delete()
	C.free(user)
}
