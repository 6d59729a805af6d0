package openai

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

var ignoreAt = cmpopts.IgnoreFields(Event{}, "At")

// readEvents reads r to its end.
func readEvents(r io.Reader, maxEvent int) ([]Event, error) {
	var events []Event
	reader := NewEventReader(r, maxEvent)
	for {
		ev, err := reader.Next()
		if err != nil {
			return events, err
		}
		events = append(events, ev)
	}
}

// Cases follow the examples and rules of the WHATWG HTML standard, section 9.2.
func TestEventReader(t *testing.T) {
	tests := []struct {
		name string
		in   string
		want []Event
	}{
		{"empty", "", nil},
		{"blank lines", "\n\n\r\n\r\r", nil},
		{"one", "data: x\n\n", []Event{{Data: "x"}}},
		{"no space", "data:x\n\n", []Event{{Data: "x"}}},
		{"only one space goes", "data:  x \n\n", []Event{{Data: " x "}}},
		{"tab stays", "data:\tx\n\n", []Event{{Data: "\tx"}}},
		{"colon in value", "data: a: b\n\n", []Event{{Data: "a: b"}}},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []Event{{Data: "a"}, {Data: "b"}}},
		{"CR", "data: a\r\rdata: b\r\r", []Event{{Data: "a"}, {Data: "b"}}},
		{"mixed ends", "data: a\r\ndata: b\rdata: c\n\r\n", []Event{{Data: "a\nb\nc"}}},
		{"LF then CR", "data: a\n\rdata: b\n\n", []Event{{Data: "a"}, {Data: "b"}}},
		{"multi-line", "data: YHOO\ndata: +2\ndata: 10\n\n", []Event{{Data: "YHOO\n+2\n10"}}},
		{"comments", ": ping\n\n:\n\ndata: x\n: ping\ndata: y\n\n", []Event{{Data: "x\ny"}}},
		{"name and id", "event: add\nid: 7\ndata: x\n\ndata: y\n\n", []Event{{Name: "add", Data: "x", ID: "7"}, {Data: "y", ID: "7"}}},
		{"id with NUL is ignored", "id: 7\ndata: x\n\nid: a\x00b\ndata: y\n\n", []Event{{Data: "x", ID: "7"}, {Data: "y", ID: "7"}}},
		{"id reset", "id: 7\ndata: x\n\nid\ndata: y\n\n", []Event{{Data: "x", ID: "7"}, {Data: "y"}}},
		{"name without data is dropped", "event: add\n\ndata: x\n\n", []Event{{Data: "x"}}},
		{"field without colon", "data\n\n", []Event{{}}},
		{"empty data twice", "data\ndata\n\n", []Event{{Data: "\n"}}},
		{"unknown fields", "retry: 10\nfoo: bar\ndatax: y\ndata: x\n\n", []Event{{Data: "x"}}},
		{"field names keep case and space", "Data: y\n data: y\ndata : y\ndata: x\n\n", []Event{{Data: "x"}}},
		{"byte order mark", "\ufeffdata: x\n\n", []Event{{Data: "x"}}},
		{"only the first mark", "\ufeff\ufeffdata: y\n\ndata: x\n\n", []Event{{Data: "x"}}},
		{"no blank line at the end", "data: x\n\ndata: [DONE]\n", []Event{{Data: "x"}, {Data: "[DONE]"}}},
		{"no newline at the end", "data: x\n\ndata: [DONE]", []Event{{Data: "x"}, {Data: "[DONE]"}}},
		{"UTF-8", "data: 中文🙂\n\n", []Event{{Data: "中文🙂"}}},
		{"long line", "data: " + strings.Repeat("x", 200<<10) + "\n\n", []Event{{Data: strings.Repeat("x", 200<<10)}}},
	}
	readers := []struct {
		name string
		wrap func(io.Reader) io.Reader
	}{
		{"whole", func(r io.Reader) io.Reader { return r }},
		{"1-byte reads", iotest.OneByteReader},
		{"half reads", iotest.HalfReader},
		{"data with error", iotest.DataErrReader},
	}
	for _, tt := range tests {
		for _, rd := range readers {
			t.Run(tt.name+"/"+rd.name, func(t *testing.T) {
				got, err := readEvents(rd.wrap(strings.NewReader(tt.in)), 0)
				if err != io.EOF {
					t.Fatalf("error %v, want io.EOF", err)
				}
				if diff := cmp.Diff(tt.want, got, ignoreAt); diff != "" {
					t.Errorf("events differ (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestEventReaderLimits(t *testing.T) {
	tests := []struct {
		name   string
		in     string
		events int
		err    error
	}{
		{"line at the limit", "data: " + strings.Repeat("x", 94) + "\n\n", 1, io.EOF},
		{"line beyond", "data: a\n\ndata: " + strings.Repeat("x", 95) + "\n\n", 1, ErrEventTooLarge},
		{"line that never ends", "data: " + strings.Repeat("x", 500), 0, ErrEventTooLarge},
		{"comment beyond", ":" + strings.Repeat("x", 100) + "\n", 0, ErrEventTooLarge},
		{"many data lines", strings.Repeat("data: "+strings.Repeat("x", 40)+"\n", 3) + "\n", 0, ErrEventTooLarge},
	}
	for _, tt := range tests {
		for _, wrap := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.DataErrReader} {
			t.Run(tt.name, func(t *testing.T) {
				reader := NewEventReader(wrap(strings.NewReader(tt.in)), 100)
				for i := range tt.events {
					if _, err := reader.Next(); err != nil {
						t.Fatalf("event %d: %v", i, err)
					}
				}
				for range 2 {
					if _, err := reader.Next(); !errors.Is(err, tt.err) {
						t.Fatalf("error %v, want %v, at each call", err, tt.err)
					}
				}
			})
		}
	}
}

func TestEventReaderErrors(t *testing.T) {
	cut := io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(io.ErrUnexpectedEOF))
	got, err := readEvents(cut, 0)
	if err != io.ErrUnexpectedEOF {
		t.Errorf("error %v, want io.ErrUnexpectedEOF", err)
	}
	if diff := cmp.Diff([]Event{{Data: "a"}}, got, ignoreAt); diff != "" {
		t.Errorf("an event that an error cut must not be returned (-want +got):\n%s", diff)
	}
	if _, err := readEvents(emptyReader{}, 0); err != io.ErrNoProgress {
		t.Errorf("error %v, want io.ErrNoProgress", err)
	}
}

type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, nil }

// delayedReader gives each part after a second.
type delayedReader struct{ parts []string }

func (d *delayedReader) Read(p []byte) (int, error) {
	if len(d.parts) == 0 {
		return 0, io.EOF
	}
	time.Sleep(time.Second)
	n := copy(p, d.parts[0])
	d.parts = d.parts[1:]
	return n, nil
}

func TestEventTimeIsTheReadsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		reader := NewEventReader(&delayedReader{[]string{"data: a\n\ndata: b\n\ndata: ", "c\n", "\n"}}, 0)
		for i, want := range []time.Duration{1, 1, 5} {
			ev, err := reader.Next()
			if err != nil {
				t.Fatal(err)
			}
			if got := ev.At.Sub(start); got != want*time.Second {
				t.Errorf("event %d stamped at %v, want %v", i, got, want*time.Second)
			}
			time.Sleep(time.Second) // a slow caller moves later reads, not the stamps of bytes already read
		}
	})
}

func TestWriteEvent(t *testing.T) {
	tests := []struct{ data, want string }{
		{"", "data: \n\n"},
		{`{"a":1}`, "data: {\"a\":1}\n\n"},
		{"a\nb", "data: a\ndata: b\n\n"},
		{"a\r\nb\rc", "data: a\ndata: b\ndata: c\n\n"},
		{"a\n\ndata: b\n", "data: a\ndata: \ndata: data: b\ndata: \n\n"},
		{" x", "data:  x\n\n"},
	}
	for _, tt := range tests {
		var buf bytes.Buffer
		if err := WriteEvent(&buf, []byte(tt.data)); err != nil {
			t.Fatal(err)
		}
		if buf.String() != tt.want {
			t.Errorf("WriteEvent(%q) = %q, want %q", tt.data, buf.String(), tt.want)
		}
	}
}

func TestWriteEventRoundTrip(t *testing.T) {
	newlines := strings.NewReplacer("\r\n", "\n", "\r", "\n")
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.StringOf(rapid.RuneFrom([]rune("a: \r\n中"))).Draw(t, "data")
		var buf bytes.Buffer
		if err := WriteEvent(&buf, []byte(data)); err != nil {
			t.Fatal(err)
		}
		got, _ := readEvents(&buf, 0)
		if diff := cmp.Diff([]Event{{Data: newlines.Replace(data)}}, got, ignoreAt); diff != "" {
			t.Fatalf("events differ (-want +got):\n%s", diff)
		}
	})
}

// splitReader cuts its bytes at the sizes given, over and over.
type splitReader struct {
	data  []byte
	sizes []byte
	calls int
}

func (s *splitReader) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	size := 1
	if len(s.sizes) > 0 {
		size = 1 + int(s.sizes[s.calls%len(s.sizes)])
	}
	s.calls++
	n := copy(p, s.data[:min(size, len(s.data))])
	s.data = s.data[n:]
	return n, nil
}

func FuzzEventReaderSplit(f *testing.F) {
	f.Add([]byte("data: a\r\n\r\n: c\rdata:b\r\rdata: x\n"), []byte{0, 2, 5})
	f.Add([]byte("\ufeffevent: e\nid: 1\ndata: 中\ndata\n\n\r\ndata"), []byte{1})
	f.Add([]byte("data: "+strings.Repeat("long", 40)+"\n\n"), []byte{255})
	f.Fuzz(func(t *testing.T, data, sizes []byte) {
		const maxEvent = 64
		want, wantErr := readEvents(bytes.NewReader(data), maxEvent)
		got, gotErr := readEvents(&splitReader{data: data, sizes: sizes}, maxEvent)
		if diff := cmp.Diff(want, got, ignoreAt); diff != "" {
			t.Errorf("events depend on the split (-whole +split):\n%s", diff)
		}
		if errors.Is(wantErr, ErrEventTooLarge) != errors.Is(gotErr, ErrEventTooLarge) {
			t.Errorf("errors depend on the split: whole %v, split %v", wantErr, gotErr)
		}
	})
}

func BenchmarkEventReader(b *testing.B) {
	event := []byte(`data: {"choices":[{"index":0,"delta":{"content":" token"}}],"usage":{"completion_tokens":1}}` + "\n\n")
	stream := bytes.Repeat(event, 1000)
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		if got, _ := readEvents(bytes.NewReader(stream), 0); len(got) != 1000 {
			b.Fatalf("%d events", len(got))
		}
	}
}
