// Package numpyrand draws the random numbers that numpy.random's legacy
// functions and Python's random module draw for the same seed, bit for bit. With
// them a benchmark offers the load that sglang's Python client offers.
package numpyrand

// The constants of MT19937 (Matsumoto and Nishimura, 1998).
const (
	words     = 624
	shift     = 397
	matrix    = 0x9908b0df
	upperBit  = 0x80000000
	lowerBits = 0x7fffffff
)

// twister is an MT19937 generator.
type twister struct {
	state [words]uint32
	next  int
}

// init is init_genrand of the reference implementation, which numpy uses for an
// integer seed.
func (t *twister) init(seed uint32) {
	t.state[0] = seed
	for i := 1; i < words; i++ {
		prev := t.state[i-1]
		t.state[i] = 1812433253*(prev^prev>>30) + uint32(i)
	}
	t.next = words
}

// initArray is init_by_array of the reference implementation, which Python uses.
func (t *twister) initArray(key []uint32) {
	t.init(19650218)
	i, j := 1, 0
	for range max(words, len(key)) {
		prev := t.state[i-1]
		t.state[i] = (t.state[i] ^ (prev^prev>>30)*1664525) + key[j] + uint32(j)
		i, j = t.advance(i), (j+1)%len(key)
	}
	for range words - 1 {
		prev := t.state[i-1]
		t.state[i] = (t.state[i] ^ (prev^prev>>30)*1566083941) - uint32(i)
		i = t.advance(i)
	}
	t.state[0] = upperBit
}

func (t *twister) advance(i int) int {
	if i+1 < words {
		return i + 1
	}
	t.state[0] = t.state[words-1]
	return 1
}

func (t *twister) twist() {
	for i := range words {
		y := t.state[i]&upperBit | t.state[(i+1)%words]&lowerBits
		v := t.state[(i+shift)%words] ^ y>>1
		if y&1 != 0 {
			v ^= matrix
		}
		t.state[i] = v
	}
	t.next = 0
}

func (t *twister) uint32() uint32 {
	if t.next >= words {
		t.twist()
	}
	y := t.state[t.next]
	t.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// float64 returns 53 random bits as a number in [0, 1).
func (t *twister) float64() float64 {
	a, b := t.uint32()>>5, t.uint32()>>6
	return (float64(a)*67108864 + float64(b)) / 9007199254740992
}
