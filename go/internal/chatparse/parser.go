// Package chatparse splits the text of a model's answer into reasoning, content
// and tool calls while it comes.
//
// A Parser is fed pieces of text and returns what has become certain. How the text
// is cut into pieces makes no difference to what comes out, joined. Marks of a
// format never come out, nor the white space around them; what might be the
// beginning of a mark is held back.
//
// A call comes out as soon as its name and the beginning of its arguments are
// there. One that is no call up to there is content, as it stands; one that the text
// ends within, up to there, is left out. One that breaks
// further on keeps what the model wrote, up to the end of the call, as arguments:
// its reader has them already, and has to check arguments anyway.
package chatparse

// Kind says what an Event adds to.
type Kind uint8

const (
	Reasoning Kind = iota // Text goes to the reasoning
	Content               // Text goes to the content
	CallBegin             // a call begins; Text is the function's name, all of it
	Arguments             // Text goes to the arguments of the call that began last
)

// Event is a part of an answer.
type Event struct {
	Kind Kind
	Text string
}

// Options say what a Parser looks for.
type Options struct {
	Tools     string   // format of the calls, of ToolFormats, or JSONCalls; "": there are none
	Functions []string // that may be called; where a format has no mark, other names are content
	Single    bool     // what comes after the first call is left out

	Reasoning string // format of the reasoning, of ReasoningFormats; "": it is content
	// Prompt is what the answer goes on from, or its end: it may have begun or ended the
	// reasoning.
	Prompt string
	Whole  bool // the reasoning comes out in one piece
}

// Parser splits one answer. It is not safe for use by several goroutines.
type Parser struct {
	reasoning *reasoning // nil: all is content
	tools     *tools     // nil: content has no calls
}

// New returns a Parser. The names in o must be known; see CheckToolFormat and
// CheckReasoningFormat.
func New(o Options) *Parser {
	p := &Parser{}
	if o.Reasoning != "" {
		p.reasoning = newReasoning(o)
	}
	if o.Tools != "" {
		p.tools = newTools(o)
	}
	return p
}

// Push takes the next piece of text.
func (p *Parser) Push(text string) []Event { return p.feed(text, false) }

// Close says that no more text comes.
func (p *Parser) Close() []Event { return p.feed("", true) }

// Thinking tells whether the text so far ends within reasoning.
func (p *Parser) Thinking() bool { return p.reasoning != nil && p.reasoning.thinks() }

// Undecided tells whether the text so far may be the beginning of reasoning.
func (p *Parser) Undecided() bool { return p.reasoning != nil && p.reasoning.state == mayThink }

// Reasons tells whether reasoning is looked for.
func (p *Parser) Reasons() bool { return p.reasoning != nil }

func (p *Parser) feed(text string, ended bool) []Event {
	if p.reasoning == nil {
		return p.content(nil, text, ended)
	}
	thought, rest := p.reasoning.feed(text, ended)
	return p.content(appendText(nil, Reasoning, thought), rest, ended)
}

func (p *Parser) content(events []Event, text string, ended bool) []Event {
	if p.tools == nil {
		return appendText(events, Content, text)
	}
	return append(events, p.tools.feed(text, ended)...)
}

// appendText adds text to the last event, if that is of its kind, or as one more.
func appendText(events []Event, kind Kind, text string) []Event {
	if text == "" {
		return events
	}
	if n := len(events); n > 0 && events[n-1].Kind == kind {
		events[n-1].Text += text
		return events
	}
	return append(events, Event{kind, text})
}
