package native

import (
	"sync"
	"time"
)

// mailbox collects the events of many streams and jobs for one reader, so that a
// reader takes all that has come with a single call. At most as many events wait
// in it as its streams have tokens.
type mailbox struct {
	ready chan struct{} // holds a token when events may have come, or the box was closed

	mu      sync.Mutex
	closed  bool
	events  []event
	streams map[int64]*stream
}

// event is a token of a stream, its end, or the end of a job.
type event struct {
	Stream           int64      `json:"stream,omitempty"`
	Job              int64      `json:"job,omitempty"`
	TokenID          *int32     `json:"token_id"` // null: this event only ends the stream
	Text             string     `json:"text"`
	FinishReason     string     `json:"finish_reason"` // "" while running
	Error            *kindError `json:"error,omitempty"`
	PromptTokens     int        `json:"prompt_tokens"`
	CachedTokens     int        `json:"cached_tokens"`
	CompletionTokens int        `json:"completion_tokens"`

	Logprob        *tokenLogprob  `json:"logprob,omitempty"`         // of the token, if asked for
	PromptLogprobs []tokenLogprob `json:"prompt_logprobs,omitempty"` // in a stream's first event, if asked for
}

var mailboxes table[*mailbox]

// OpenMailbox returns a new mailbox.
func OpenMailbox() (box int64, err error) {
	defer guard(&err)
	m := &mailbox{ready: make(chan struct{}, 1), streams: map[int64]*stream{}}
	return mailboxes.add(m), nil
}

// CloseMailbox cancels the streams of a mailbox and drops what is in it. A
// second call does nothing.
func CloseMailbox(box int64) (none bool, err error) {
	defer guard(&err)
	if m, ok := mailboxes.remove(box); ok {
		m.close()
	}
	return none, nil
}

// NextEvents waits for events, at most timeoutMs milliseconds, and takes all that
// have come as a JSON list (see event), the oldest first. The result is empty if
// there is none.
func NextEvents(box, timeoutMs int64) (out string, err error) {
	defer guard(&err)
	m, err := mailboxOf(box)
	if err != nil {
		return "", err
	}
	events := m.take()
	if len(events) == 0 && timeoutMs > 0 {
		select {
		case <-m.ready:
		case <-time.After(time.Duration(timeoutMs) * time.Millisecond):
		}
		events = m.take()
	}
	if len(events) == 0 {
		return "", nil
	}
	return encode(events)
}

// Watch sends an event to a mailbox when a job has ended; Result then takes what
// it gave.
func Watch(job, box int64) (none bool, err error) {
	defer guard(&err)
	t, err := taskOf(job)
	if err != nil {
		return none, err
	}
	m, err := mailboxOf(box)
	if err != nil {
		return none, err
	}
	go func() {
		<-t.done
		m.push(event{Job: job})
	}()
	return none, nil
}

func mailboxOf(box int64) (*mailbox, error) {
	m, ok := mailboxes.get(box)
	if !ok {
		return nil, fail(kindClosed, "the mailbox was closed")
	}
	return m, nil
}

func (m *mailbox) push(ev event) {
	m.mu.Lock()
	if !m.closed {
		m.events = append(m.events, ev)
	}
	m.mu.Unlock()
	m.wake()
}

func (m *mailbox) wake() {
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// take empties the box. A token that is left in ready makes the next wait end
// early once, which its caller can't tell from a wait that was too short.
func (m *mailbox) take() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.events
	m.events = nil
	return events
}

// join makes a stream one of the box's, unless the box is closed.
func (m *mailbox) join(id int64, s *stream) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.streams[id] = s
	return true
}

func (m *mailbox) leave(id int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.streams, id)
}

func (m *mailbox) close() {
	m.mu.Lock()
	m.closed, m.events = true, nil
	for _, s := range m.streams {
		s.cancel()
	}
	m.mu.Unlock()
	m.wake()
}
