package tokenizer

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
)

// The library's memory lies outside the Go heap: many large texts and many
// tokenizers must not leave any behind.
func TestA37_MemoryReturns(t *testing.T) {
	text := strings.Repeat("Some text, 漢字 and 12345 numbers.\n", 750)
	tok := fromVocabT(t, smollm2Vocab(t, "smollm"))
	encode := func() {
		ids, err := tok.Encode(text, false)
		if err != nil || len(ids) < 5_000 {
			t.Fatalf("Encode gives %d ids, %v", len(ids), err)
		}
		if got, err := tok.Decode(ids, false); err != nil || got != text {
			t.Fatalf("the text does not come back, %v", err)
		}
	}
	openAndClose := func() {
		for range 2 {
			small, err := Open("testdata/llama")
			if err != nil {
				t.Fatal(err)
			}
			if err := small.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A lost encoding or tokenizer would be about 1 MB each time. The allocator
	// keeps some memory for each thread, so it takes rounds to level off.
	const warmUp, rounds, limit = 40, 80, 40 << 20
	for name, f := range map[string]func(){"encode": encode, "open": openAndClose} {
		for range warmUp {
			f()
		}
		before := residentOutsideHeap(t)
		for range rounds {
			f()
		}
		if grown := residentOutsideHeap(t) - before; grown > limit {
			t.Errorf("%s: memory outside the Go heap grew by %d bytes in %d rounds", name, grown, rounds)
		}
	}
}

// TestA37_LargeText: what the library allocates for a large text, 100 times its
// size, goes back to the system with it.
func TestA37_LargeText(t *testing.T) {
	tok := fromVocabT(t, smollm2Vocab(t, "smollm"))
	checkReturned(t, tok, 512<<10, 3, 0)
}

// TestExtended_A37_LargeTexts does so with the sizes that were reported: texts of
// 10 MB, and thousands of distinct ones of 2 kB.
func TestExtended_A37_LargeTexts(t *testing.T) {
	if os.Getenv("MINISGL_TEST_MODELS") == "" {
		t.Skip("takes minutes: make test-models runs it (MINISGL_TEST_MODELS=1)")
	}
	tok := fromVocabT(t, smollm2Vocab(t, "smollm"))
	checkReturned(t, tok, 10<<20, 5, 4000)
}

// checkReturned encodes and decodes a text of a size, and distinct small ones, for
// some rounds.
func checkReturned(t *testing.T, tok *Tokenizer, size, rounds, small int) {
	t.Helper()
	const line = "Some text, 漢字 and 12345 numbers.\n"
	comesBack := func(text string) {
		ids, err := tok.Encode(text, false)
		if got, _ := tok.Decode(ids, false); err != nil || got != text {
			t.Fatalf("a text of %d bytes does not come back: %v", len(text), err)
		}
	}
	round := func(n int) {
		comesBack(strings.Repeat(line, size/len(line)))
		for i := range small {
			comesBack(strings.Repeat("text "+strconv.Itoa(small*n+i)+"; ", 150))
		}
	}
	const warmUp = 2 // rounds that fill the library's cache of words, and the allocator's pools of each thread
	for n := range warmUp {
		round(n)
	}
	before := residentOutsideHeap(t)
	for n := range rounds {
		round(warmUp + n)
	}
	// A lost encoding would be 100 times its text. How much of Go's own heap is
	// resident can't be told apart to some times the text.
	if grown, limit := residentOutsideHeap(t)-before, int64(30<<20+10*size); grown > limit {
		t.Errorf("memory outside the Go heap grew by %d bytes, more than %d", grown, limit)
	}
}

// residentOutsideHeap returns the bytes of resident memory that Go does not
// hold.
func residentOutsideHeap(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	fields := strings.Fields(readString(t, "/proc/self/statm"))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return pages*int64(os.Getpagesize()) - int64(m.Sys-m.HeapReleased)
}
