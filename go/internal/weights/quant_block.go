package weights

import "encoding/binary"

// The block types of 32 values: one float16 scale, for the _1 types a float16 minimum, then codes. A byte of codes
// holds value i in its low half and value i+16 in its high half; the fifth bits of Q5 lie in a 32-bit word before.
// Products are converted to float32 before they are added, because Go may otherwise fuse the two roundings.

func decodeQ40(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[18:] {
		expandQ40(dst[:32], src[2:18], half(src))
	}
}

// expandQ40 decodes the 16 bytes of codes of one block.
func expandQ40(out []float32, codes []byte, d float32) {
	for i, code := range codes {
		out[i] = d * float32(int(code&15)-8)
		out[i+16] = d * float32(int(code>>4)-8)
	}
}

func decodeQ41(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[20:] {
		d, m, codes, out := half(src), half(src[2:]), src[4:20], dst[:32]
		for i, code := range codes {
			out[i] = float32(d*float32(code&15)) + m
			out[i+16] = float32(d*float32(code>>4)) + m
		}
	}
}

func decodeQ50(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[22:] {
		d, high, codes, out := half(src), binary.LittleEndian.Uint32(src[2:]), src[6:22], dst[:32]
		for i, code := range codes {
			low, up := fiveBits(code, high, i)
			out[i] = d * float32(low-16)
			out[i+16] = d * float32(up-16)
		}
	}
}

func decodeQ51(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[24:] {
		d, m := half(src), half(src[2:])
		high, codes, out := binary.LittleEndian.Uint32(src[4:]), src[8:24], dst[:32]
		for i, code := range codes {
			low, up := fiveBits(code, high, i)
			out[i] = float32(d*float32(low)) + m
			out[i+16] = float32(d*float32(up)) + m
		}
	}
}

// fiveBits returns the codes of values i and i+16 of a Q5 block.
func fiveBits(code byte, high uint32, i int) (low, up int) {
	low = int(code&15) | int(high>>i&1)<<4
	up = int(code>>4) | int(high>>(i+16)&1)<<4
	return low, up
}

func decodeQ80(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[34:] {
		expandQ80(dst[:32], src[2:34], half(src))
	}
}

// expandQ80 decodes the 32 bytes of codes of one block.
func expandQ80(out []float32, codes []byte, d float32) {
	for i, code := range codes {
		out[i] = float32(int8(code)) * d
	}
}
