// Package ngram guesses how a sequence of tokens goes on: where its last tokens
// stood before, those that followed may follow again (prompt lookup decoding,
// Saxena 2023).
package ngram

const (
	// MinMatch is the number of last tokens that must have stood somewhere before.
	MinMatch = 2
	// MaxMatch is the number beyond which a longer match counts no more.
	MaxMatch = 16
	// Window is the number of latest positions that are searched. It bounds an
	// Index to 512 KiB.
	Window = 1 << 16
	// maxTries bounds the places that are compared for one guess, the latest first.
	maxTries = 16
)

// Index knows where in one sequence each pair of tokens stands: a hash table of
// chains, as in LZ77. It is fed as the sequence grows, and keeps no token of it.
type Index struct {
	heads []int32 // by hash: the latest place after such a pair; 0: none
	prev  []int32 // by place, modulo Window: the one before it in its chain; it may be of another pair with the same hash
	shift uint32
	next  int // places below it are in
}

// New returns an index for a sequence of up to n tokens.
func New(n int) *Index {
	bits := uint32(4)
	for ; 1<<bits < min(n, Window); bits++ {
	}
	return &Index{heads: make([]int32, 1<<bits), prev: make([]int32, MinMatch), shift: 32 - bits, next: MinMatch}
}

// Extend takes in what is new of the sequence.
func (x *Index) Extend(ids []int32) {
	for ; x.next < len(ids); x.next++ {
		head := &x.heads[x.hash(ids, x.next)]
		if x.next < Window {
			x.prev = append(x.prev, *head)
		} else {
			x.prev[x.next%Window] = *head
		}
		*head = int32(x.next)
	}
}

// Guess appends to dst up to n tokens that may follow the sequence: those that
// followed the longest match of its end, of equals the latest, as far as another
// match about as long agrees. In records the names of fields agree, what they hold
// does not. It appends nothing if there is no match.
func (x *Index) Guess(dst, ids []int32, n int) []int32 {
	at, other := x.match(ids)
	if at == 0 {
		return dst
	}
	begin := len(dst)
	// follower is the i-th token behind a place; one in the guess itself if a match runs on into that.
	follower := func(place, i int) int32 {
		if place+i < len(ids) {
			return ids[place+i]
		}
		return dst[begin+place+i-len(ids)]
	}
	for i := range n {
		token := follower(at, i)
		if other > 0 && follower(other, i) != token {
			break
		}
		dst = append(dst, token)
	}
	return dst
}

// match returns the place behind the longest match of the sequence's end, or 0, and
// that behind the next longest, 0 if it is much shorter.
func (x *Index) match(ids []int32) (at, other int) {
	if len(ids) < MinMatch {
		return 0, 0
	}
	longest, next := MinMatch-1, MinMatch-1
	place := int(x.heads[x.hash(ids, len(ids))])
	for tries := 0; place > max(0, len(ids)-Window) && tries < maxTries && next < MaxMatch; tries++ {
		switch n := common(ids, place); {
		case n > longest:
			at, longest, other, next = place, n, at, longest
		case n > next:
			other, next = place, n
		}
		place = int(x.prev[place%Window])
	}
	if 4*next < 3*longest {
		other = 0
	}
	return at, other
}

// common is the number of tokens before a place that equal the last ones, up to
// MaxMatch.
func common(ids []int32, place int) int {
	n := 0
	for n < min(MaxMatch, place) && ids[place-1-n] == ids[len(ids)-1-n] {
		n++
	}
	return n
}

// hash is that of the pair before a place.
func (x *Index) hash(ids []int32, place int) uint32 {
	return (uint32(ids[place-2])*0x9e3779b1 ^ uint32(ids[place-1])*0x85ebca77) * 0xc2b2ae3d >> x.shift
}
