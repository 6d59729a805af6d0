package loadgen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minisgl/minisgl/bench/internal/record"
	"github.com/minisgl/minisgl/go/openai"
)

const (
	maxAnswer   = 256 << 20 // bytes of event data kept of one answer
	maxErrBody  = 8 << 10   // bytes read of an error answer
	maxSnippet  = 200       // bytes of server text put into an error message
	drainWait   = 250 * time.Millisecond
	dialTimeout = 30 * time.Second
	readBuffer  = 64 << 10
)

var (
	errTimeout = errors.New("request time limit passed")
	errIdle    = errors.New("idle time limit passed")
)

// Exchange is one answer as it was read: events with the times of their bytes.
type Exchange struct {
	Events  []openai.Event
	Finish  bool      // [DONE] was read
	Done    time.Time // when the stream ended or failed
	Kind    record.Kind
	Status  int
	Err     string
	ErrBody string // start of the body of an HTTP error
}

func (x *Exchange) fail(kind record.Kind, format string, args ...any) *Exchange {
	x.Kind, x.Err = kind, fmt.Sprintf(format, args...)
	x.Done = time.Now()
	return x
}

// HTTPOptions configure NewHTTP. Zero time limits mean none.
type HTTPOptions struct {
	Header      map[string]string
	Timeout     time.Duration // for a whole request
	IdleTimeout time.Duration // between two reads, and before the first
	Connections int           // idle connections to keep; the most requests in flight at a time
	// NewConnections opens one for each request instead of keeping them.
	NewConnections bool
	Dial           func(ctx context.Context, network, addr string) (net.Conn, error) // nil: a net.Dialer's
}

// HTTP sends JSON and reads event streams over kept HTTP/1.1 connections, or
// WebSockets. What is not measured, and what takes a proxy, is net/http's.
type HTTP struct {
	client    *http.Client
	transport *http.Transport
	wires     wires
	opts      HTTPOptions
	sockets   socketPool
}

// NewHTTP returns a client. Close releases its connections.
func NewHTTP(opts HTTPOptions) *HTTP {
	if opts.Dial == nil {
		opts.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment, // never used for localhost
		DialContext:         opts.Dial,
		Protocols:           protocols,
		DisableKeepAlives:   opts.NewConnections,
		DisableCompression:  true,                     // a compressor would hold tokens back
		MaxIdleConnsPerHost: max(opts.Connections, 2), // through a proxy
		IdleConnTimeout:     90 * time.Second,
		ReadBufferSize:      readBuffer,
	}
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := &http.Client{Transport: transport, CheckRedirect: noRedirect}
	return &HTTP{client: client, transport: transport, wires: wires{dial: opts.Dial, most: max(opts.Connections, 2)}, opts: opts, sockets: socketPool{dialing: make(chan struct{}, 1)}}
}

// OpenAhead opens connections for n requests at once to an address before they
// are sent, unless each request is to open its own.
func (h *HTTP) OpenAhead(ctx context.Context, address string, n int) {
	to, err := url.Parse(address)
	if err != nil || h.opts.NewConnections || h.proxied(&http.Request{URL: to}) {
		return
	}
	h.wires.openAhead(ctx, to, n)
}

func (h *HTTP) proxied(req *http.Request) bool {
	proxy, err := http.ProxyFromEnvironment(req)
	return proxy != nil || err != nil
}

// roundTrip sends a request that is measured.
func (h *HTTP) roundTrip(req *http.Request) (*http.Response, error) {
	if h.proxied(req) {
		return h.client.Do(req)
	}
	req.Close = h.opts.NewConnections
	return h.wires.roundTrip(req)
}

// Close closes idle connections, and all WebSockets.
func (h *HTTP) Close() {
	h.wires.closeIdle()
	h.transport.CloseIdleConnections()
	h.sockets.close()
}

func (h *HTTP) request(ctx context.Context, method, url string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for key, value := range h.opts.Header {
		req.Header.Set(key, value)
	}
	return req, nil
}

// limits cancels a request when a time limit passes.
type limits struct {
	total, idle *time.Timer
	idleLimit   time.Duration
}

func (h *HTTP) startLimits(cancel context.CancelCauseFunc) *limits {
	l := &limits{idleLimit: h.opts.IdleTimeout}
	if h.opts.Timeout > 0 {
		l.total = time.AfterFunc(h.opts.Timeout, func() { cancel(fmt.Errorf("%w: no complete answer after %v", errTimeout, h.opts.Timeout)) })
	}
	if h.opts.IdleTimeout > 0 {
		l.idle = time.AfterFunc(h.opts.IdleTimeout, func() { cancel(fmt.Errorf("%w: nothing arrived for %v", errIdle, h.opts.IdleTimeout)) })
	}
	return l
}

func (l *limits) touch() {
	if l.idle != nil {
		l.idle.Reset(l.idleLimit)
	}
}

func (l *limits) stop() {
	for _, t := range []*time.Timer{l.total, l.idle} {
		if t != nil {
			t.Stop()
		}
	}
}

// touchReader restarts the idle limit at each read.
type touchReader struct {
	r io.Reader
	l *limits
}

func (t touchReader) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	t.l.touch()
	return n, err
}

// Call is one request for an answer that is measured.
type Call struct {
	URL      string
	Body     []byte
	Header   map[string]string
	Document bool // the answer is one JSON document, not an event stream
}

// Do posts a call and reads the answer.
func (h *HTTP) Do(parent context.Context, call Call) *Exchange {
	x := &Exchange{}
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	limits := h.startLimits(cancel)
	defer limits.stop()
	req, err := h.request(ctx, http.MethodPost, call.URL, call.Body)
	if err != nil {
		return x.fail(record.Connect, "%v", err)
	}
	if !call.Document {
		req.Header.Set("Accept", "text/event-stream")
	}
	for key, value := range call.Header {
		req.Header.Set(key, value)
	}
	resp, err := h.roundTrip(req)
	if err != nil {
		return x.failRead(ctx, parent, record.Connect, err)
	}
	defer resp.Body.Close()
	limits.touch()
	x.Status = resp.StatusCode
	if kind, text := x.refused(resp, call.Document); kind != record.OK {
		return x.fail(kind, "%s", text)
	}
	answer := touchReader{resp.Body, limits}
	if call.Document {
		return x.readDocument(ctx, parent, answer)
	}
	err = x.readEvents(answer)
	x.Done = time.Now()
	switch {
	case x.Finish:
		x.Done = x.Events[len(x.Events)-1].At
		x.Events = x.Events[:len(x.Events)-1]
		limits.stop()
		drain(resp.Body, cancel)
	case err != nil && !errors.Is(err, io.EOF):
		return x.failRead(ctx, parent, record.Truncated, err)
	}
	return x
}

// readDocument reads an answer that comes in one piece, as one event.
func (x *Exchange) readDocument(ctx, parent context.Context, r io.Reader) *Exchange {
	data, err := io.ReadAll(io.LimitReader(r, maxAnswer))
	if err != nil {
		return x.failRead(ctx, parent, record.Truncated, err)
	}
	x.Done = time.Now()
	x.Events = []openai.Event{{Data: string(data), At: x.Done}}
	x.Finish = true
	return x
}

// refused reads an answer of another kind than was asked for.
func (x *Exchange) refused(resp *http.Response, document bool) (record.Kind, string) {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && (document || media != "application/json") {
		return record.OK, ""
	}
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrBody))
	x.ErrBody = string(data)
	if resp.StatusCode == http.StatusOK {
		return record.StreamError, "the server answered with one JSON document, not an event stream: " + snippet(x.ErrBody)
	}
	return record.HTTPStatus, resp.Status + ": " + snippet(x.ErrBody)
}

// readEvents collects events until [DONE], an error event, or the end.
func (x *Exchange) readEvents(r io.Reader) error {
	events := openai.NewEventReader(r, 0)
	size := 0
	for {
		ev, err := events.Next()
		if err != nil {
			return err
		}
		x.Events = append(x.Events, ev)
		if ev.Data == "[DONE]" {
			x.Finish = true
			return nil
		}
		if ev.Name == "error" || strings.HasPrefix(ev.Data, `{"error":`) && !strings.HasPrefix(ev.Data, `{"error":null`) {
			return nil
		}
		if size += len(ev.Data); size > maxAnswer {
			return fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
		}
	}
}

// failRead says why reading or connecting failed; a limit or an interrupt that
// cancelled the request comes first.
func (x *Exchange) failRead(ctx, parent context.Context, kind record.Kind, err error) *Exchange {
	cause := context.Cause(ctx)
	switch {
	case parent.Err() != nil:
		return x.fail(record.Cancelled, "the run was interrupted after %d events", len(x.Events))
	case errors.Is(cause, errTimeout), errors.Is(cause, errIdle):
		return x.fail(record.Timeout, "%v, after %d events", cause, len(x.Events))
	case kind == record.Truncated:
		return x.fail(kind, "reading failed after %d events: %v", len(x.Events), err)
	}
	return x.fail(kind, "%v", err)
}

// drain reads the end of a finished stream, so that its connection can be used
// again, but does not wait long for it.
func drain(body io.Reader, cancel context.CancelCauseFunc) {
	timer := time.AfterFunc(drainWait, func() { cancel(nil) })
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, body, maxErrBody)
}

// snippet is the start of text, on one line.
func snippet(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxSnippet {
		text = strings.ToValidUTF8(text[:maxSnippet], "") + "…"
	}
	return text
}
