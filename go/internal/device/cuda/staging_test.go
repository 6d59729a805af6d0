//go:build !cuda && amd64

package cuda

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// slowCopies copies as late as it may: when a mark behind a copy is passed.
type slowCopies struct {
	memory  []byte
	waiting []waitingCopy
	marks   [Marks]int // copies before each
	begun   int        // copies that were begun
	passed  int        // times that somebody had to wait
}

type waitingCopy struct {
	dst uintptr
	src []byte
}

func (s *slowCopies) Pin(n int) ([]byte, error) { return make([]byte, n), nil }

func (s *slowCopies) Copy(dst uintptr, src []byte) error {
	s.waiting, s.begun = append(s.waiting, waitingCopy{dst, src}), s.begun+1
	return nil
}

func (s *slowCopies) Mark(i int) error {
	s.marks[i] = s.begun
	return nil
}

func (s *slowCopies) Pass(i int) error {
	s.passed++
	s.run(len(s.waiting) - (s.begun - s.marks[i]))
	return nil
}

func (s *slowCopies) run(n int) {
	for _, c := range s.waiting[:max(n, 0)] {
		copy(s.memory[c.dst:], c.src)
	}
	s.waiting = s.waiting[max(n, 0):]
}

// TestStaging: no pinned byte is written again before its copy has ended, though the copies
// end as late as they may; and nothing waits as long as there is room in the ring.
func TestStaging(t *testing.T) {
	const part, total = 64, 10000
	rng := rand.New(rand.NewPCG(1, 2))
	want := make([]byte, total)
	for i := range want {
		want[i] = byte(rng.IntN(256))
	}
	slow := &slowCopies{memory: make([]byte, total)}
	s := staging{c: slow, size: part}
	for at := 0; at < total; {
		src := bytes.Clone(want[at:min(at+1+rng.IntN(3*part), total)])
		before := slow.passed
		if err := s.write(uintptr(at), src); err != nil {
			t.Fatal(err)
		}
		at += len(src)
		clear(src) // it was staged
		if at <= Marks*part && slow.passed > before {
			t.Errorf("a write up to byte %d waited for a copy", at)
		}
		if len(slow.waiting) == 0 {
			t.Fatal("a write waited for its own copy")
		}
	}
	slow.run(len(slow.waiting))
	if !bytes.Equal(slow.memory, want) {
		t.Error("a part of the ring was written again before its copies had ended")
	}
}
