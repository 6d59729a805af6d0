package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A stage is one step of a decoder as a tokenizer.json describes it, in a form
// that takes the tokens one by one: what all pushes and the flush append, put
// together, is what the step of the Rust crate makes of the whole list.
type stage interface {
	push(dst []string, piece string) []string
	flush(dst []string) []string
}

// decoderSpec is the "decoder" field of a tokenizer.json.
type decoderSpec struct {
	Type     string        `json:"type"`
	Decoders []decoderSpec `json:"decoders"`
	Pattern  struct {
		String *string `json:"String"`
	} `json:"pattern"`
	Content       string `json:"content"`
	Start         int    `json:"start"`
	Stop          int    `json:"stop"`
	Replacement   string `json:"replacement"`
	PrependScheme string `json:"prepend_scheme"`
	// AddPrefixSpace is the older form of PrependScheme.
	AddPrefixSpace *bool `json:"add_prefix_space"`
}

// pipeline makes fresh stages for one run of a decoder and knows the bytes
// of a single token.
type pipeline struct {
	stages []func() stage
	// raw maps the text of a vocabulary entry to its bytes.
	raw []func(piece string) (string, bool)
}

// newPipeline reads the decoder field of a tokenizer.json.
func newPipeline(field json.RawMessage) (*pipeline, error) {
	p := &pipeline{}
	if len(field) == 0 || string(field) == "null" {
		p.stages = append(p.stages, func() stage { return &joinStage{} })
		return p, nil
	}
	var spec decoderSpec
	if err := json.Unmarshal(field, &spec); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	specs := []decoderSpec{spec}
	if spec.Type == "Sequence" {
		specs = spec.Decoders
	}
	fused := false
	for _, s := range specs {
		if err := p.add(s, &fused); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// add appends the stage that s describes. fused tells that the stages before
// it have joined the tokens into one text.
func (p *pipeline) add(s decoderSpec, fused *bool) error {
	switch {
	case s.Type == "ByteLevel":
		*fused = true
		p.stages = append(p.stages, func() stage { return &byteLevelStage{} })
		p.raw = append(p.raw, byteLevelBytes)
	case s.Type == "Fuse":
		*fused = true
	case s.Type == "ByteFallback" && !*fused:
		p.stages = append(p.stages, func() stage { return &byteFallbackStage{} })
		p.raw = append(p.raw, fallbackByte)
	case s.Type == "Replace" && !*fused && s.Pattern.String != nil && *s.Pattern.String != "":
		rep := strings.NewReplacer(*s.Pattern.String, s.Content)
		p.stages = append(p.stages, func() stage { return mapStage(rep.Replace) })
		p.raw = append(p.raw, func(piece string) (string, bool) { return rep.Replace(piece), false })
	case s.Type == "Strip" && s.Stop == 0 && s.Start >= 0 && utf8.RuneCountInString(s.Content) == 1:
		each := !*fused
		p.stages = append(p.stages, func() stage { return &stripStage{cut: s.Content, start: s.Start, left: s.Start, each: each} })
	case s.Type == "Metaspace" && !*fused && s.Replacement != "":
		keep := s.PrependScheme == "never" || s.AddPrefixSpace != nil && !*s.AddPrefixSpace
		p.stages = append(p.stages, func() stage { return &metaspaceStage{mark: s.Replacement, keepFirst: keep} })
		p.raw = append(p.raw, func(piece string) (string, bool) {
			return strings.ReplaceAll(piece, s.Replacement, " "), false
		})
	default:
		return fmt.Errorf("decoder %q in this form or place is not supported; supported are ByteLevel, Metaspace and sequences of Replace, ByteFallback, Fuse and Strip", s.Type)
	}
	return nil
}

// bytes returns the raw bytes of the vocabulary entry piece.
func (p *pipeline) bytes(piece string) []byte {
	for _, f := range p.raw {
		var final bool
		if piece, final = f(piece); final {
			break
		}
	}
	return []byte(piece)
}

// run is one decoding in progress.
type run struct {
	stages []stage
	a, b   []string
}

func (p *pipeline) start() *run {
	r := &run{stages: make([]stage, len(p.stages))}
	for i, f := range p.stages {
		r.stages[i] = f()
	}
	return r
}

// push decodes one more token and returns the text that is certain by now.
func (r *run) push(piece string) string {
	r.a = append(r.a[:0], piece)
	return r.through(0)
}

// through sends the pieces in r.a through the stages from i on.
func (r *run) through(i int) string {
	for ; i < len(r.stages); i++ {
		r.b = r.b[:0]
		for _, piece := range r.a {
			r.b = r.stages[i].push(r.b, piece)
		}
		r.a, r.b = r.b, r.a
	}
	if len(r.a) == 1 {
		return r.a[0]
	}
	return strings.Join(r.a, "")
}

// flush ends the decoding and returns the text that was held back.
func (r *run) flush() string {
	var out strings.Builder
	for i, s := range r.stages {
		r.a = s.flush(r.a[:0])
		out.WriteString(r.through(i + 1))
	}
	return out.String()
}

// mapStage changes each token by itself.
type mapStage func(string) string

func (f mapStage) push(dst []string, piece string) []string { return append(dst, f(piece)) }
func (f mapStage) flush(dst []string) []string              { return dst }

// joinStage puts a space between tokens, as for a tokenizer without a decoder.
type joinStage struct{ begun bool }

func (s *joinStage) push(dst []string, piece string) []string {
	if s.begun {
		dst = append(dst, " ")
	}
	s.begun = true
	return append(dst, piece)
}

func (s *joinStage) flush(dst []string) []string { return dst }

// byteLevelStage maps the characters that GPT-2 uses for bytes back to bytes.
type byteLevelStage struct{ text utf8Buffer }

func (s *byteLevelStage) push(dst []string, piece string) []string {
	b, _ := byteLevelBytes(piece)
	return append(dst, s.text.push([]byte(b)))
}

func (s *byteLevelStage) flush(dst []string) []string { return append(dst, s.text.flush()) }

// byteFallbackStage joins runs of tokens <0xNN>. The crate turns a run that is
// not valid UTF-8 as a whole into one U+FFFD for each byte, so a run is held
// back until it ends.
type byteFallbackStage struct{ held []byte }

func (s *byteFallbackStage) push(dst []string, piece string) []string {
	if b, ok := fallbackByte(piece); ok {
		s.held = append(s.held, b...)
		return dst
	}
	return append(s.flush(dst), piece)
}

func (s *byteFallbackStage) flush(dst []string) []string {
	if len(s.held) == 0 {
		return dst
	}
	text := string(s.held)
	if !utf8.Valid(s.held) {
		text = strings.Repeat(replacement, len(s.held))
	}
	s.held = s.held[:0]
	return append(dst, text)
}

// fallbackByte returns the byte that a token <0xNN> stands for; any other
// token comes back unchanged with false.
func fallbackByte(piece string) (string, bool) {
	if len(piece) != 6 || !strings.HasPrefix(piece, "<0x") || piece[5] != '>' {
		return piece, false
	}
	// Rust's from_str_radix takes a plus sign before the digits.
	b, err := strconv.ParseUint(strings.TrimPrefix(piece[3:5], "+"), 16, 8)
	if err != nil {
		return piece, false
	}
	return string([]byte{byte(b)}), true
}

// stripStage drops up to start characters cut at the front: of the whole text,
// or of each token.
type stripStage struct {
	cut         string
	start, left int
	each        bool
}

func (s *stripStage) push(dst []string, piece string) []string {
	if s.each {
		s.left = s.start
	}
	for s.left > 0 && piece != "" {
		rest, ok := strings.CutPrefix(piece, s.cut)
		if !ok {
			s.left = 0
			break
		}
		piece = rest
		s.left--
	}
	return append(dst, piece)
}

func (s *stripStage) flush(dst []string) []string { return dst }

// metaspaceStage turns the mark for a space into a space, and into nothing in
// the first token unless keepFirst.
type metaspaceStage struct {
	mark      string
	keepFirst bool
	begun     bool
}

func (s *metaspaceStage) push(dst []string, piece string) []string {
	space := " "
	if !s.begun && !s.keepFirst {
		space = ""
	}
	s.begun = true
	return append(dst, strings.ReplaceAll(piece, s.mark, space))
}

func (s *metaspaceStage) flush(dst []string) []string { return dst }
