package weights

// permutation undoes the row order of llama.cpp's q and k projections. Hugging Face rotates value i of a head with
// value i+half; llama.cpp's converter makes such pairs neighbours. The zero value changes nothing.
type permutation struct {
	half int // half a head's rows
}

// source returns the stored row that holds row in Hugging Face order.
func (p permutation) source(row int) int {
	if p.half == 0 {
		return row
	}
	size := 2 * p.half
	head, within := row/size, row%size
	return head*size + 2*(within%p.half) + within/p.half
}
