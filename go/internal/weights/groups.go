package weights

// Grouping says how the values of a quantized type are stored: codes in groups of Size along a row, each group with a
// scale and perhaps a minimum. A value is (code - Zero) * scale, or code * scale + minimum.
type Grouping struct {
	Size   int
	Bits   int // of the largest code
	Zero   int
	Minima bool
	Half   bool // whether scales are float16 values
}

// groups is some consecutive groups of a row.
type groups struct {
	codes          []byte
	scales, minima []float32
}

// Grouping returns how the tensor is quantized; ok is false when it is not.
func (t Tensor) Grouping() (g Grouping, ok bool) {
	if t.make != nil || t.plusOne {
		return Grouping{}, false
	}
	return formats[t.kind].Grouping, formats[t.kind].split != nil
}

// Groups takes one row of a quantized tensor apart, exactly, into Cols() codes and a scale and a minimum for each group;
// minima may be nil for a type that has none. It is safe for concurrent use.
func (t Tensor) Groups(codes []byte, scales, minima []float32, row int) {
	f := &formats[t.kind]
	to := groups{codes[:t.Cols()], scales, minima}
	if t.scales != nil {
		t.splitApart(to, row)
		return
	}
	size := t.Cols() / f.blockSize * f.blockBytes
	src := t.data[t.order.source(row)*size:][:size]
	for ; len(src) > 0; src = src[f.blockBytes:] {
		f.split(to, src)
		to = to.from(f.blockSize, f.Size)
	}
}

// from returns the groups after the first n values.
func (g groups) from(n, size int) groups {
	g.codes, g.scales = g.codes[n:], g.scales[n/size:]
	if g.minima != nil {
		g.minima = g.minima[n/size:]
	}
	return g
}

// values computes the values of groups. Products are converted to float32 before they are added, because Go may
// otherwise fuse the two roundings.
func (g groups) values(dst []float32, by Grouping) {
	for i := range dst {
		scale := g.scales[i/by.Size]
		if by.Minima {
			dst[i] = float32(scale*float32(g.codes[i])) + g.minima[i/by.Size]
		} else {
			dst[i] = scale * float32(int(g.codes[i])-by.Zero)
		}
	}
}

// read decodes len(dst) values, which are whole blocks, from src.
func (f *format) read(dst []float32, src []byte) {
	if f.split == nil {
		f.decode(dst, src)
		return
	}
	var codes [superBlock]byte
	var scales, minima [superBlock / 16]float32
	block := groups{codes[:f.blockSize], scales[:], minima[:]}
	for ; len(dst) > 0; dst, src = dst[f.blockSize:], src[f.blockBytes:] {
		f.split(block, src)
		block.values(dst[:f.blockSize], f.Grouping)
	}
}
