package tokenizer

import "unicode/utf8"

const replacement = "\uFFFD"

// utf8Buffer turns a stream of bytes into text. Each maximal part of an
// ill-formed sequence becomes one U+FFFD (Unicode, section 3.9, "substitution
// of maximal subparts"), as in Rust's String::from_utf8_lossy and Python's
// bytes.decode(errors="replace"); Go's own conversion writes one for each byte.
type utf8Buffer struct {
	held []byte // an incomplete sequence that more bytes may finish
}

// push appends b and returns the text that no later byte can change.
func (u *utf8Buffer) push(b []byte) string {
	if len(u.held) > 0 {
		b = append(u.held, b...)
	}
	text, rest := decodeLossy(b)
	u.held = append([]byte(nil), rest...)
	return text
}

// flush ends the stream: an incomplete sequence becomes one U+FFFD.
func (u *utf8Buffer) flush() string {
	if len(u.held) == 0 {
		return ""
	}
	u.held = nil
	return replacement
}

// decodeLossy returns the text of b up to an incomplete sequence at its end,
// and that sequence.
func decodeLossy(b []byte) (text string, rest []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	out := make([]byte, 0, len(b)+len(replacement))
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r != utf8.RuneError || size > 1 {
			out = append(out, b[i:i+size]...)
			i += size
			continue
		}
		n, complete := illFormed(b[i:])
		if !complete && i+n == len(b) {
			return string(out), b[i:]
		}
		out = append(out, replacement...)
		i += n
	}
	return string(out), nil
}

// illFormed returns the length of the maximal ill-formed part at the start of
// b. complete is false when more bytes could make the part well formed.
func illFormed(b []byte) (n int, complete bool) {
	need, lo, hi := leadByte(b[0])
	if need == 0 {
		return 1, true
	}
	for n = 1; n <= need; n++ {
		if n == len(b) {
			return n, false
		}
		if b[n] < lo || b[n] > hi {
			return n, true
		}
		lo, hi = 0x80, 0xBF
	}
	return n, true
}

// leadByte returns how many bytes follow lead byte c and the bounds of the
// first of them (Unicode, table 3-7), or zero for a byte that leads nothing.
func leadByte(c byte) (need int, lo, hi byte) {
	switch {
	case c >= 0xC2 && c <= 0xDF:
		return 1, 0x80, 0xBF
	case c == 0xE0:
		return 2, 0xA0, 0xBF
	case c == 0xED:
		return 2, 0x80, 0x9F
	case c >= 0xE1 && c <= 0xEF:
		return 2, 0x80, 0xBF
	case c == 0xF0:
		return 3, 0x90, 0xBF
	case c >= 0xF1 && c <= 0xF3:
		return 3, 0x80, 0xBF
	case c == 0xF4:
		return 3, 0x80, 0x8F
	}
	return 0, 0, 0
}
