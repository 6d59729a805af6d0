package chatparse

import (
	"bytes"
	"strings"
)

// maxSpace bounds the white space before a mark that is left out, and so held
// back.
const maxSpace = 256

const space = " \t\r\n"

func isSpace(c byte) bool { return strings.IndexByte(space, c) >= 0 }

// split looks for a mark. text is how many bytes of s are certain to come before
// it, without white space right before it; rest is where s goes on behind it, 0 if
// it isn't there. ended says that nothing follows s.
func split(s []byte, mark string, ended bool) (text, rest int) {
	at := bytes.Index(s, []byte(mark))
	switch {
	case at >= 0:
		rest = at + len(mark)
	case ended:
		return len(s), 0
	default:
		at = len(s) - partial(s, mark)
	}
	least := max(at-maxSpace, 0)
	return least + len(bytes.TrimRight(s[least:at], space)), rest
}

// partial returns the length of the longest end of s that a mark begins with, and
// that isn't all of it.
func partial(s []byte, mark string) int {
	for n := min(len(s), len(mark)-1); n > 0; n-- {
		if string(s[len(s)-n:]) == mark[:n] {
			return n
		}
	}
	return 0
}
