package shell

import "strings"

// In a pasted text, line ends and tabs are shown as Unicode's pictures of them,
// so that a paste is one line to the editor: it can be looked at and edited before
// it is sent, and be found again in the history.
const (
	lineEndPicture = '␤'
	tabPicture     = '␉'
)

// withoutPictures turns an edited line into the message that it shows.
func withoutPictures(line string) string {
	return strings.NewReplacer(string(lineEndPicture), "\n", string(tabPicture), "\t").Replace(line)
}

// What a terminal puts around a paste once it is asked to.
const (
	pasteOn    = "\x1b[?2004h"
	pasteOff   = "\x1b[?2004l"
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// pasteFilter passes a terminal's input on. Of a paste it passes on the text, with
// pictures in the place of line ends and tabs, and without other control
// characters and the mark at its end. (The mark at its beginning is a key that the
// editor doesn't know.)
type pasteFilter struct {
	pasting bool
	matched int // bytes of the mark that is looked for; held back in a paste
	afterCR bool
}

// pass appends to dst what of the next bytes is passed on.
func (f *pasteFilter) pass(dst, next []byte) []byte {
	for _, b := range next {
		mark := pasteBegin
		if f.pasting {
			mark = pasteEnd
		}
		held := f.matched
		switch b {
		case mark[held]:
			f.matched++
		case mark[0]:
			f.matched = 1
		default:
			f.matched = 0
		}
		if f.pasting {
			dst = f.passPasted(dst, mark, held, b)
		} else {
			dst = append(dst, b)
		}
		if f.matched == len(mark) {
			f.pasting, f.matched, f.afterCR = !f.pasting, 0, false
		}
	}
	return dst
}

// passPasted adds what was held back of a mark that b turned out not to belong to,
// and b unless it may belong to one.
func (f *pasteFilter) passPasted(dst []byte, mark string, held int, b byte) []byte {
	if f.matched == held+1 {
		return dst
	}
	if held > 1 {
		dst = append(dst, mark[1:held]...)
	}
	afterCR := f.afterCR
	f.afterCR = b == '\r'
	switch {
	case b == '\n' && afterCR:
		return dst
	case b == '\r' || b == '\n':
		return append(dst, string(lineEndPicture)...)
	case b == '\t':
		return append(dst, string(tabPicture)...)
	case b < ' ' || b == 0x7f:
		return dst
	}
	return append(dst, b)
}
