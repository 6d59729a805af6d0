package loadgen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minisgl/minisgl/bench/internal/ontime"
)

const (
	readyInterval = 500 * time.Millisecond
	readyTry      = 10 * time.Second
)

// ParseBase returns the address of a server without a path of the API:
// "http://127.0.0.1:1919", ".../v1" and ".../v1/chat/completions" mean the same.
// The scheme may be left out.
func ParseBase(raw string) (string, error) {
	text := strings.TrimSpace(raw)
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("loadgen: url %q: %w", raw, err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return "", fmt.Errorf("loadgen: url %q: want http://HOST:PORT or https://HOST", raw)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("loadgen: url %q: a query or a fragment has no meaning here", raw)
	}
	path := strings.TrimRight(u.Path, "/")
	path = strings.TrimSuffix(path, "/chat/completions")
	path = strings.TrimSuffix(path, "/completions")
	path = strings.TrimSuffix(path, "/generate")
	u.Path = strings.TrimSuffix(path, "/v1")
	return u.String(), nil
}

// permanentError is an answer that waiting does not change.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// WaitReady asks for the server's models until it answers, for at most timeout,
// and returns their names. With a timeout of 0 it asks once. onWait, if not nil,
// is called once, after the first try failed.
func (h *HTTP) WaitReady(ctx context.Context, base string, timeout time.Duration, onWait func(error)) ([]string, error) {
	deadline := time.Now().Add(timeout)
	for {
		models, err := h.models(ctx, base)
		if err == nil {
			return models, nil
		}
		if IsPermanent(err) || ctx.Err() != nil {
			return nil, err
		}
		if time.Until(deadline) <= 0 {
			return nil, fmt.Errorf("loadgen: the server at %s did not get ready within %v: %w", base, timeout, err)
		}
		if onWait != nil {
			onWait(err)
			onWait = nil
		}
		ontime.Wait(ctx, time.Now().Add(min(readyInterval, time.Until(deadline))))
	}
}

// maxDocument bounds what Fetch reads of an answer, in bytes.
const maxDocument = 16 << 20

// Fetch sends a request that is not measured and returns the answer's status
// and body. A body of nil sends none. ctx bounds the time.
func (h *HTTP) Fetch(ctx context.Context, method, url string, body []byte) (int, []byte, error) {
	req, err := h.request(ctx, method, url, body)
	if err != nil {
		return 0, nil, permanentError{fmt.Errorf("loadgen: %w", err)}
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("loadgen: %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err != nil {
		return 0, nil, fmt.Errorf("loadgen: reading the answer of %s: %w", url, err)
	}
	return resp.StatusCode, data, nil
}

func (h *HTTP) models(ctx context.Context, base string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTry)
	defer cancel()
	status, data, err := h.Fetch(ctx, http.MethodGet, base+"/v1/models", nil)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		err := fmt.Errorf("loadgen: GET %s/v1/models: %d %s: %s", base, status, http.StatusText(status), snippet(string(data)))
		if status < 500 && status != http.StatusTooManyRequests {
			return nil, permanentError{err}
		}
		return nil, err
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, permanentError{fmt.Errorf("loadgen: GET %s/v1/models: not a list of models: %w", base, err)}
	}
	names := make([]string, 0, len(list.Data))
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names, nil
}

// IsPermanent reports whether err is a server's answer that waiting does not change.
func IsPermanent(err error) bool { return errors.As(err, new(permanentError)) }
