package weights

import "encoding/binary"

// The block types of 32 values: one float16 scale, for the _1 types a float16 minimum, then codes. A byte of codes
// holds value i in its low half and value i+16 in its high half; the fifth bits of Q5 lie in a 32-bit word before.

func splitQ40(row groups, src []byte) {
	row.scales[0] = half(src)
	splitHalves(row.codes, src[2:18])
}

// splitHalves takes the 16 bytes of codes of one block apart.
func splitHalves(codes, packed []byte) {
	for i, code := range packed {
		codes[i], codes[i+16] = code&15, code>>4
	}
}

func splitQ41(row groups, src []byte) {
	row.scales[0], row.minima[0] = half(src), half(src[2:])
	splitHalves(row.codes, src[4:20])
}

func splitQ50(row groups, src []byte) {
	row.scales[0] = half(src)
	splitFiveBits(row.codes, binary.LittleEndian.Uint32(src[2:]), src[6:22])
}

func splitQ51(row groups, src []byte) {
	row.scales[0], row.minima[0] = half(src), half(src[2:])
	splitFiveBits(row.codes, binary.LittleEndian.Uint32(src[4:]), src[8:24])
}

// splitFiveBits takes the codes of a Q5 block apart: low four bits in packed, fifth bits in high.
func splitFiveBits(codes []byte, high uint32, packed []byte) {
	splitHalves(codes, packed)
	for i := range codes {
		codes[i] |= byte(high>>i&1) << 4
	}
}

func splitQ80(row groups, src []byte) {
	row.scales[0] = half(src)
	splitSigned(row.codes, src[2:34])
}

// splitSigned makes unsigned codes of the signed ones of one block: 128 is zero.
func splitSigned(codes, packed []byte) {
	for i, code := range packed {
		codes[i] = code ^ 0x80
	}
}
