package grammar

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/minisgl/minisgl/go/internal/core"
)

// TestForcedIsTheMask walks through every schema with two matchers, one of which is
// asked for forced tokens. A forced token is the only one that the other's mask allows,
// and that it was asked for changes no mask.
func TestForcedIsTheMask(t *testing.T) {
	r := newRig(t)
	rng := rand.New(rand.NewPCG(5, 6))
	forced, ends := 0, 0
	for _, s := range schemas(t) {
		plain, asked := r.matcher(core.GrammarJSONSchema, string(s.Schema)), r.matcher(core.GrammarJSONSchema, string(s.Schema))
		var output []int32
		for len(output) < 80 {
			want := r.allowed(plain, output)
			if len(output) > 0 { // the scheduler asks behind a token
				if id, ok := asked.Forced(output); ok {
					forced++
					if !slices.Equal(want, []int32{id}) {
						t.Fatalf("%s: %d is forced after %q, but allowed are %v", s.Name, id, r.text(output), want)
					}
				}
			}
			if got := r.allowed(asked, output); !slices.Equal(want, got) {
				t.Fatalf("%s: after %q the mask allows %v, and %v if it was asked what is forced", s.Name, r.text(output), want, got)
			}
			id := want[rng.IntN(len(want))]
			if id == r.eos {
				ends++
				break
			}
			output = append(output, id)
		}
		plain.Close()
		asked.Close()
	}
	if forced < 1000 || ends < 20 {
		t.Errorf("%d forced tokens and %d ends test too little", forced, ends)
	}
}

// TestForcedRuns: asked again and again, a matcher spells out all that is forced, as the
// tokenizer spells it, and the end.
func TestForcedRuns(t *testing.T) {
	r := newRig(t)
	m := r.matcher(core.GrammarRegex, "(yes|no): the list of them is é and 日本")
	defer m.Close()
	output := r.encode("no")
	for {
		id, ok := m.Forced(output)
		if !ok {
			t.Fatalf("nothing is forced after %q", r.text(output))
		}
		if id == r.eos {
			break
		}
		output = append(output, id)
	}
	if want := r.encode("no: the list of them is é and 日本"); !slices.Equal(want, output) {
		t.Errorf("forced %v, want %v", output, want)
	}
}

// TestNothingForced: where several tokens may follow, after an output that breaks the
// grammar, and when it is closed.
func TestNothingForced(t *testing.T) {
	r := newRig(t)
	m := r.matcher(core.GrammarRegex, "a[bc]+")
	for _, text := range []string{"a", "ab", "abx"} {
		if id, ok := m.Forced(r.encode(text)); ok {
			t.Errorf("%d is forced after %q", id, text)
		}
	}
	m.Close()
	if id, ok := m.Forced(r.encode("a")); ok {
		t.Errorf("%d is forced by a closed matcher", id)
	}
}
