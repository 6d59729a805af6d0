package tokenizer

// GPT-2's vocabulary spells each byte as one printable character: bytes that
// print in Latin-1 stand for themselves, the others take the characters from
// U+0100 on in order (bytes_to_unicode in the encoder.py that OpenAI published
// with GPT-2).
var (
	byteToRune [256]rune
	runeToByte = map[rune]byte{}
)

func init() {
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		printable := b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE
		if !printable {
			r = next
			next++
		}
		byteToRune[b] = r
		runeToByte[r] = byte(b)
	}
}

// byteLevelBytes returns the bytes that piece spells, and piece itself when
// one of its characters spells no byte, as the crate's decoder does.
func byteLevelBytes(piece string) (string, bool) {
	out := make([]byte, 0, len(piece))
	for _, r := range piece {
		b, ok := runeToByte[r]
		if !ok {
			return piece, true
		}
		out = append(out, b)
	}
	return string(out), true
}
