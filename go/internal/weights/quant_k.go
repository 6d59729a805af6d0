package weights

// The K types: super-blocks of 256 values in groups of 16 or 32, each group with a small integer scale (and, for
// Q2_K, Q4_K and Q5_K, a small integer minimum, to be subtracted) of the super-block's float16 scale.

// splitQ2K: 16 bytes of scales (low half) and minima (high half), 64 of codes, scale, minimum's scale.
func splitQ2K(row groups, src []byte) {
	d, dmin := half(src[80:]), half(src[82:])
	for group := range 16 {
		row.scales[group], row.minima[group] = d*float32(src[group]&15), -dmin*float32(src[group]>>4)
		codes, shift := twoBitGroup(src[16:80], group)
		for i, code := range codes {
			row.codes[16*group+i] = code >> shift & 3
		}
	}
}

// splitQ3K: 32 bytes of third bits, 64 of two-bit codes, 12 of six-bit scales, scale.
func splitQ3K(row groups, src []byte) {
	d := half(src[108:])
	for group := range 16 {
		row.scales[group] = d * float32(sixBitScale(src[96:108], group)-32)
		codes, shift := twoBitGroup(src[32:96], group)
		thirds, plane := src[16*(group&1):][:16], group>>1
		for i, code := range codes {
			row.codes[16*group+i] = code>>shift&3 | thirds[i]>>plane&1<<2
		}
	}
}

// twoBitGroup returns the 16 bytes that hold a group's two-bit codes and how far to shift them: each half of the
// super-block lies in 32 bytes, its four runs of 32 values in successive bit pairs.
func twoBitGroup(codes []byte, group int) (bytes []byte, shift int) {
	return codes[32*(group>>3)+16*(group&1):][:16], 2 * (group >> 1 & 3)
}

// sixBitScale unpacks one of Q3_K's 16 scales: low four bits in 8 bytes, high two bits in 4.
func sixBitScale(packed []byte, group int) int {
	low := packed[group&7] >> (4 * (group >> 3)) & 15
	high := packed[8+group&3] >> (2 * (group >> 2)) & 3
	return int(low) | int(high)<<4
}

// splitQ4K: scale, minimum's scale, 12 bytes of six-bit scales and minima, 128 of codes.
func splitQ4K(row groups, src []byte) {
	d, dmin := half(src), half(src[2:])
	for group := range 8 {
		s, m := scaleMin(src[4:16], group)
		row.scales[group], row.minima[group] = d*float32(s), -dmin*float32(m)
		codes, shift := src[16+32*(group>>1):][:32], 4*(group&1)
		for i, code := range codes {
			row.codes[32*group+i] = code >> shift & 15
		}
	}
}

// splitQ5K: as Q4_K, with 32 bytes of fifth bits before the codes, one bit plane for each group.
func splitQ5K(row groups, src []byte) {
	d, dmin, high := half(src), half(src[2:]), src[16:48]
	for group := range 8 {
		s, m := scaleMin(src[4:16], group)
		row.scales[group], row.minima[group] = d*float32(s), -dmin*float32(m)
		codes, shift := src[48+32*(group>>1):][:32], 4*(group&1)
		for i, code := range codes {
			row.codes[32*group+i] = code>>shift&15 | high[i]>>group&1<<4
		}
	}
}

// scaleMin unpacks one of the 8 six-bit scales and minima of Q4_K and Q5_K: the first four of each lie in the low six
// bits of bytes 0-3 and 4-7, the rest in the halves of bytes 8-11 and the top bits of bytes 0-7.
func scaleMin(packed []byte, group int) (scale, minimum byte) {
	if group < 4 {
		return packed[group] & 63, packed[group+4] & 63
	}
	both := packed[group+4]
	return both&15 | packed[group-4]>>6<<4, both>>4 | packed[group]>>6<<4
}

// splitQ6K: 128 bytes of low four bits, 64 of high two bits, 16 signed scales, scale. Each half of the super-block
// is four runs of 32 values: low bits in the low halves of two runs of bytes, then in their high halves.
func splitQ6K(row groups, src []byte) {
	d, scales := half(src[208:]), src[192:208]
	for group := range 16 {
		row.scales[group] = d * float32(int8(scales[group]))
		part, run, side := group>>3, group>>1&3, 16*(group&1)
		lows, lowShift := src[64*part+32*(run&1)+side:][:16], 4*(run>>1)
		highs, highShift := src[128+32*part+side:][:16], 2*run
		for i, low := range lows {
			row.codes[16*group+i] = low>>lowShift&15 | highs[i]>>highShift&3<<4
		}
	}
}
