package grammar

// #include <stdlib.h>
// #include <stdint.h>
import "C"

import (
	"bytes"
	"runtime/cgo"
	"sync"
	"unsafe"
)

// speller tells how the tokenizer spells a text that a grammar forces.
type speller struct {
	v      Vocabulary
	size   int
	once   sync.Once
	ids    map[string]int32 // of tokens that text spells
	widest int              // bytes of the longest of them
}

func newSpeller(v Vocabulary, size int) *speller { return &speller{v: v, size: size} }

// export makes the speller known to C. exact is 0 if the tokenizer's tokens don't
// spell the text that was encoded, as those that put a space in front: then no
// token is forced before its time.
func (s *speller) export() (user unsafe.Pointer, exact int) {
	const sample = `{"name": "Zoë", "n": [1, 20, -3.5e7]}` + "\n\ttext, more text"
	if ids, err := s.v.Encode(sample, false); err == nil && s.spells(ids, []byte(sample)) {
		exact = 1
	}
	user = C.malloc(C.size_t(unsafe.Sizeof(cgo.Handle(0))))
	*(*cgo.Handle)(user) = cgo.NewHandle(s)
	return user, exact
}

// spells reports whether tokens stand for a text, by letters alone.
func (s *speller) spells(ids []int32, text []byte) bool {
	for _, id := range ids {
		token := s.v.TokenBytes(id)
		if int(id) >= s.size || s.v.IsSpecial(id) || !bytes.HasPrefix(text, token) {
			return false
		}
		text = text[len(token):]
	}
	return len(text) == 0
}

// spell returns the tokens of a text. One that spells a special token, or that
// the tokenizer changes, is cut into the longest tokens that it begins with.
func (s *speller) spell(text []byte) []int32 {
	if ids, err := s.v.Encode(string(text), false); err == nil && s.spells(ids, text) {
		return ids
	}
	s.once.Do(s.index)
	var ids []int32
	for len(text) > 0 {
		n := min(s.widest, len(text))
		id, ok := s.ids[string(text[:n])]
		for !ok && n > 1 {
			n--
			id, ok = s.ids[string(text[:n])]
		}
		if !ok {
			return ids // no token begins like this; the grammar's mask is empty then, too
		}
		ids, text = append(ids, id), text[n:]
	}
	return ids
}

func (s *speller) index() {
	s.ids = make(map[string]int32, s.size)
	for id := range int32(s.size) {
		if token := s.v.TokenBytes(id); len(token) > 0 && !s.v.IsSpecial(id) {
			s.ids[string(token)] = id
			s.widest = max(s.widest, len(token))
		}
	}
}

// minisglTokenize is llguidance's LlgTokenizeFn.
//
//export minisglTokenize
func minisglTokenize(user unsafe.Pointer, text *C.uint8_t, n C.size_t, out *C.uint32_t, room C.size_t) C.size_t {
	s := (*cgo.Handle)(user).Value().(*speller)
	ids := s.spell(unsafe.Slice((*byte)(text), int(n)))
	dst := unsafe.Slice((*int32)(unsafe.Pointer(out)), int(room))
	copy(dst, ids)
	return C.size_t(len(ids))
}
