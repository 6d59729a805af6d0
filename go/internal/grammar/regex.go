package grammar

import "strings"

// unanchored drops the anchors around a regular expression, which is matched as
// a whole anyway.
func unanchored(regex string) string {
	regex = strings.TrimPrefix(regex, "^")
	if body, ok := strings.CutSuffix(regex, "$"); ok {
		if slashes := len(body) - len(strings.TrimRight(body, `\`)); slashes%2 == 0 {
			return body
		}
	}
	return regex
}

// classes are what a letter after a backslash stands for: ASCII alone, as in RE2 and
// in JSON schemas.
var classes = map[byte]string{'d': `0-9`, 'w': `0-9A-Za-z_`, 's': `\t\n\v\f\r `}

// asciiClasses writes \d, \w, \s and their opposites out; brackets may stand
// within brackets.
func asciiClasses(regex string) string {
	var b strings.Builder
	bracket := false
	for i := 0; i < len(regex); i++ {
		c := regex[i]
		if c != '\\' || i+1 == len(regex) {
			bracket = c == '[' || bracket && c != ']'
			b.WriteByte(c)
			continue
		}
		i++
		class, known := classes[regex[i]|0x20]
		switch opposite := regex[i]&0x20 == 0; {
		case !known:
			b.WriteString(regex[i-1 : i+1])
		case opposite:
			b.WriteString("[^" + class + "]")
		case bracket:
			b.WriteString(class)
		default:
			b.WriteString("[" + class + "]")
		}
	}
	return b.String()
}
