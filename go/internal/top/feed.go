package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/gorilla/websocket"

	"github.com/minisgl/minisgl/go/openai"
)

const (
	maxMessage  = 16 << 20
	dialTimeout = 10 * time.Second
	silence     = 30 * time.Second // without a message a connection counts as broken
)

// feed is a connection to /ws/stats.
type feed struct {
	conn  *websocket.Conn
	hello *openai.StatsHello
	stop  func() bool
}

// message is one of the server's.
type message struct {
	stats openai.ServerStats
	raw   []byte
}

// dial connects and reads the server's first message. The connection ends with
// ctx.
func dial(ctx context.Context, server *url.URL, key string) (*feed, error) {
	u := server.JoinPath("/ws/stats")
	u.Scheme = map[string]string{"http": "ws", "https": "wss"}[server.Scheme]
	header := http.Header{}
	if key != "" {
		header.Set("Authorization", "Bearer "+key)
	}
	dialer := websocket.Dialer{Proxy: http.ProxyFromEnvironment, HandshakeTimeout: dialTimeout}
	conn, resp, err := dialer.DialContext(ctx, u.String(), header)
	if resp != nil {
		defer resp.Body.Close()
	}
	if err != nil {
		return nil, dialError(server, resp, err)
	}
	conn.SetReadLimit(maxMessage)
	f := &feed{conn: conn, stop: context.AfterFunc(ctx, func() { _ = conn.Close() })}
	f.hello, err = f.readHello()
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// dialError tells the server's own words if it answered.
func dialError(server *url.URL, resp *http.Response, err error) error {
	if resp == nil {
		return fmt.Errorf("no server at %s: %w", server, err)
	}
	data, _ := io.ReadAll(resp.Body) // the dialer has cut it short
	var body openai.ErrorBody
	if json.Unmarshal(data, &body) == nil && body.Error != nil {
		return fmt.Errorf("%s answered %s: %w", server, resp.Status, body.Error)
	}
	return fmt.Errorf("%s answered %s; does it know /ws/stats?", server, resp.Status)
}

func (f *feed) close() {
	f.stop()
	_ = f.conn.Close() // it may be closed
}

func (f *feed) readHello() (*openai.StatsHello, error) {
	var hello openai.StatsHello
	if _, err := f.read(&hello); err != nil {
		return nil, err
	}
	if hello.V != openai.SocketVersion || hello.Type != openai.StatsTypeHello {
		return nil, fmt.Errorf("the server's messages are %q of version %d; this program knows version %d", hello.Type, hello.V, openai.SocketVersion)
	}
	return &hello, nil
}

// next returns the next message.
func (f *feed) next() (message, error) {
	var m message
	var err error
	m.raw, err = f.read(&m.stats)
	return m, err
}

func (f *feed) read(to any) ([]byte, error) {
	if err := f.conn.SetReadDeadline(time.Now().Add(silence)); err != nil {
		return nil, err
	}
	_, data, err := f.conn.ReadMessage()
	var closed *websocket.CloseError
	switch {
	case errors.As(err, &closed):
		return nil, errors.New("the server has closed the connection")
	case err != nil:
		return nil, fmt.Errorf("the connection broke: %w", err)
	}
	return data, json.Unmarshal(data, to)
}
