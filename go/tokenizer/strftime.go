package tokenizer

import (
	"fmt"
	"strings"
	"time"
)

// strftimeLayouts are the codes of Python's strftime that a Go layout writes.
var strftimeLayouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January",
	'c': "Mon Jan _2 15:04:05 2006", 'd': "02", 'D': "01/02/06", 'e': "_2",
	'F': "2006-01-02", 'H': "15", 'I': "03", 'j': "002", 'm': "01", 'M': "04",
	'p': "PM", 'r': "03:04:05 PM", 'R': "15:04", 'S': "05", 'T': "15:04:05",
	'x': "01/02/06", 'X': "15:04:05", 'y': "06", 'Y': "2006",
}

// strftime formats t as Python's datetime.strftime does in the C locale for a
// time without a zone. Unknown codes stay as they are.
func strftime(t time.Time, format string) string {
	var out strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			out.WriteByte(format[i])
			continue
		}
		i++
		unpadded := format[i] == '-' && i+1 < len(format)
		if unpadded {
			i++
		}
		text, ok := strftimeCode(t, format[i])
		switch {
		case !ok && unpadded:
			text = "%-" + format[i:i+1]
		case !ok:
			text = "%" + format[i:i+1]
		case unpadded:
			if text = strings.TrimLeft(text, "0 "); text == "" {
				text = "0"
			}
		}
		out.WriteString(text)
	}
	return out.String()
}

// strftimeCode returns what one code stands for.
func strftimeCode(t time.Time, code byte) (string, bool) {
	if layout, ok := strftimeLayouts[code]; ok {
		return t.Format(layout), true
	}
	isoYear, isoWeek := t.ISOWeek()
	weekday, day := int(t.Weekday()), t.YearDay()
	switch code {
	case '%':
		return "%", true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'C':
		return fmt.Sprintf("%02d", t.Year()/100), true
	case 'k':
		return fmt.Sprintf("%2d", t.Hour()), true
	case 'l':
		return fmt.Sprintf("%2d", (t.Hour()+11)%12+1), true
	case 's':
		return fmt.Sprint(t.Unix()), true
	case 'w':
		return fmt.Sprint(weekday), true
	case 'u':
		return fmt.Sprint((weekday+6)%7 + 1), true
	case 'U':
		return fmt.Sprintf("%02d", (day+6-weekday)/7), true
	case 'W':
		return fmt.Sprintf("%02d", (day+6-(weekday+6)%7)/7), true
	case 'V':
		return fmt.Sprintf("%02d", isoWeek), true
	case 'G':
		return fmt.Sprintf("%04d", isoYear), true
	case 'z', 'Z':
		return "", true
	}
	return "", false
}
