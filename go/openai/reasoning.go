package openai

// Reasoning says what becomes of the model's reasoning, if the server tells it from
// the rest. The names are sglang's.
type Reasoning struct {
	Separate bool // give it as reasoning_content; else it stays in the content
	Stream   bool // as it comes; else in one piece
	Budget   *int // tokens of it at most; nil: no limit
}

func parseReasoning(f *fields) Reasoning {
	const budget = "thinking_budget"
	r := Reasoning{Separate: f.flagOr("separate_reasoning", true), Stream: f.flagOr("stream_reasoning", true)}
	for _, o := range []*fields{f, f.object("chat_template_kwargs")} {
		if _, ok := o.raw(budget); !ok || r.Budget != nil {
			continue
		}
		n := o.integer(budget, 0)
		if n < 0 {
			o.fail(Invalid(o.name(budget), "must be at least 0, got %d", n))
		}
		f.failAs(o)
		r.Budget = &n
	}
	return r
}
