//go:build cuda || amd64

package cuda

// stagingPart is the size of a part of the pinned memory.
const stagingPart = 4 << 20

// Marks is the number of marks that Copies has.
const Marks = 4

// Copies is how a Machine copies to its memory while lists run.
type Copies interface {
	// Pin returns n bytes of host memory that Copy can take; they live until Close.
	Pin(n int) ([]byte, error)

	// Copy starts a copy of pinned memory, which must stay unchanged until a mark behind
	// the copy was passed. Copies run in order, before the lists and the reads that come
	// after them.
	Copy(dst uintptr, src []byte) error

	// Mark sets mark i, from 0 to Marks-1, behind the copies that were started. Pass waits
	// until those before the mark have ended.
	Mark(i int) error
	Pass(i int) error
}

// staging is the pinned memory through which the host's values go to the GPU, so that
// nothing waits for a copy: a ring of parts, each written again only when the copies from
// it have ended.
type staging struct {
	c      Copies
	parts  [Marks][]byte // made when they are first needed
	marked [Marks]bool   // copies from the part may be running
	size   int           // of a part
	at     int           // the part that is being written
	used   int           // bytes of it
}

// write copies src to the GPU; src may change at once.
func (s *staging) write(dst uintptr, src []byte) error {
	for len(src) > 0 {
		part, err := s.room()
		if err != nil {
			return err
		}
		n := copy(part, src)
		if err := s.c.Copy(dst, part[:n]); err != nil {
			return err
		}
		s.used, dst, src = s.used+n, dst+uintptr(n), src[n:]
	}
	return nil
}

// room returns what of a part is free, in the next one if this one is full.
func (s *staging) room() (free []byte, err error) {
	if s.used == s.size {
		if err := s.c.Mark(s.at); err != nil {
			return nil, err
		}
		s.marked[s.at], s.at, s.used = true, (s.at+1)%Marks, 0
	}
	if s.marked[s.at] {
		if err := s.c.Pass(s.at); err != nil {
			return nil, err
		}
		s.marked[s.at] = false
	}
	if s.parts[s.at] == nil {
		if s.parts[s.at], err = s.c.Pin(s.size); err != nil {
			return nil, err
		}
	}
	return s.parts[s.at][s.used:], nil
}
