package weights

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	maxAttempts   = 5 // in a row without a byte of progress
	maxRedirects  = 10
	firstWait     = time.Second
	longestWait   = 30 * time.Second
	longestRetry  = 10 * time.Minute // that a server may ask for
	stallTimeout  = time.Minute      // without a byte
	maxErrorBytes = 64 << 10         // of an error's body
)

var errStalled = fmt.Errorf("no data for %v", stallTimeout)

// client speaks HTTP to a hub: it tries again what may succeed later, and gives its token to the hub's host only.
type client struct {
	http     *http.Client
	token    string
	progress io.Writer
	attempts int
	wait     func(ctx context.Context, d time.Duration) error
}

func newClient(token string, progress io.Writer) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true // sizes and ranges are those of the file
	return &client{
		http:  &http.Client{Transport: transport, CheckRedirect: checkRedirect},
		token: token, progress: progress, attempts: maxAttempts, wait: sleep,
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

var errRedirect = errors.New("refused redirect")

// checkRedirect keeps the token from other hosts (net/http alone would give it to subdomains, and signed URLs refuse
// it), and answers a HEAD with the hub's own response when that names the file behind the redirect.
func checkRedirect(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("%w: more than %d in a row", errRedirect, maxRedirects)
	case first.Scheme == "https" && req.URL.Scheme != "https":
		return fmt.Errorf("%w: from https to %s", errRedirect, req.URL.Scheme)
	case req.URL.Host == first.Host:
		return nil
	case req.Method == http.MethodHead && req.Response.Header.Get(linkedETag) != "":
		return http.ErrUseLastResponse
	}
	req.Header.Del("Authorization")
	return nil
}

// statusError is an answer of a server that isn't a success.
type statusError struct {
	url     string // without query, which may hold a signature
	status  int
	code    string // the hub's name of the error, such as GatedRepo
	message string
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("%s answered %d %s", e.url, e.status, http.StatusText(e.status))
	if e.message != "" {
		text += ": " + e.message
	}
	return text
}

// temporary is an error that may not come again.
type temporary struct {
	error
	after time.Duration // how long the server asks to wait, 0 if it doesn't
}

func (e temporary) Unwrap() error { return e.error }

// retry calls try until it succeeds, fails for good, or has failed too often in a row without progress.
func (c *client) retry(ctx context.Context, try func() (progress bool, err error)) error {
	wait := firstWait
	for failures := 0; ; {
		moved, err := try()
		var later temporary
		if err == nil || !errors.As(err, &later) {
			return err
		}
		if moved {
			failures, wait = 0, firstWait
		}
		failures++
		if failures >= c.attempts {
			return fmt.Errorf("gave up after %d attempts: %w", failures, later.error)
		}
		if later.after > longestRetry {
			return fmt.Errorf("the server asks to wait %v: %w", later.after, later.error)
		}
		pause := max(wait, later.after)
		fmt.Fprintf(c.progress, "%v; trying again in %v\n", later.error, pause)
		if err := c.wait(ctx, pause); err != nil {
			return err
		}
		wait = min(2*wait, longestWait)
	}
}

// do sends one request and returns a response of status 200 or 206, or that of a redirect which checkRedirect kept.
// The caller closes it. Errors that may not come again are temporary.
func (c *client) do(ctx context.Context, method, address string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	for key, values := range header {
		req.Header[key] = values
	}
	req.Header.Set("User-Agent", "minisgl")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, classify(ctx, bare(req.URL), err)
	}
	redirect := resp.StatusCode/100 == 3 && method == http.MethodHead
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent || redirect {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, failure(resp)
}

// failure makes an error of a response.
func failure(resp *http.Response) error {
	err := &statusError{
		url: bare(resp.Request.URL), status: resp.StatusCode,
		code: resp.Header.Get("X-Error-Code"), message: brief(resp.Header.Get("X-Error-Message")),
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes)) // a reason if there is one
	var said struct {
		Error   string `json:"error"`
		Message string
	}
	if json.Unmarshal(body, &said) == nil && err.message == "" {
		err.message = brief(said.Error + said.Message)
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusRequestedRangeNotSatisfiable:
		return temporary{err, askedWait(resp.Header)}
	}
	return err
}

// rateLimit finds the seconds until the hub's window ends: "api";r=0;t=55.
var rateLimit = regexp.MustCompile(`;\s*r=0\b.*;\s*t=(\d{1,9})`)

// askedWait returns how long a server asks to wait.
func askedWait(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if match := rateLimit.FindStringSubmatch(h.Get("RateLimit")); text == "" && match != nil {
		text = match[1]
	}
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// classify makes an error of a failed connection temporary, if it may not come again.
func classify(ctx context.Context, where string, err error) error {
	if errors.Is(context.Cause(ctx), errStalled) {
		err = errStalled
	} else if ctx.Err() != nil {
		return ctx.Err()
	}
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err // the text of url.Error holds signatures
	}
	err = fmt.Errorf("%s: %w", where, err)
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	if errors.Is(err, errRedirect) || errors.As(err, &certificate) || errors.As(err, &name) && name.IsNotFound {
		return err
	}
	return temporary{error: err}
}

// bare is a URL without user, query and fragment.
func bare(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// watch returns a context that ends when alive hasn't been called for stallTimeout.
func watch(ctx context.Context) (watched context.Context, alive func(), stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	return watched, func() { timer.Reset(stallTimeout) }, func() {
		timer.Stop()
		cancel(nil)
	}
}

// getJSON reads a JSON document of at most limit bytes.
func (c *client) getJSON(ctx context.Context, address string, limit int64, into any) error {
	return c.retry(ctx, func() (bool, error) {
		ctx, _, stop := watch(ctx)
		defer stop()
		resp, err := c.do(ctx, http.MethodGet, address, nil)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
		switch {
		case err != nil:
			return false, classify(ctx, bare(resp.Request.URL), err)
		case int64(len(text)) > limit:
			return false, fmt.Errorf("%s: the answer is longer than %d bytes", bare(resp.Request.URL), limit)
		}
		if err := json.Unmarshal(text, into); err != nil {
			return false, fmt.Errorf("%s: the answer is not what a hub says: %w", bare(resp.Request.URL), err)
		}
		return false, nil
	})
}

// head returns the headers of a file: those of the last response that has them, of the redirects that led there.
func (c *client) head(ctx context.Context, address string) (get func(key string) string, err error) {
	var answers []http.Header // the last one first
	err = c.retry(ctx, func() (bool, error) {
		ctx, _, stop := watch(ctx)
		defer stop()
		resp, err := c.do(ctx, http.MethodHead, address, nil)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		answers = []http.Header{resp.Header}
		for earlier := resp.Request.Response; earlier != nil; earlier = earlier.Request.Response {
			answers = append(answers, earlier.Header)
		}
		return false, nil
	})
	return func(key string) string {
		for _, header := range answers {
			if value := header.Get(key); value != "" {
				return value
			}
		}
		return ""
	}, err
}

// download completes a file of known size, from where it ends now.
func (c *client) download(ctx context.Context, address string, file *os.File, size int64, report func(done int64)) error {
	return c.retry(ctx, func() (bool, error) {
		begin, err := file.Seek(0, io.SeekEnd)
		if err != nil || begin == size {
			return false, err
		}
		if begin > size {
			begin = 0
		}
		end, err := c.downloadFrom(ctx, address, file, begin, size, report)
		return end > begin, err
	})
}

// downloadFrom makes one attempt and returns where the file ends then.
func (c *client) downloadFrom(ctx context.Context, address string, file *os.File, begin, size int64, report func(done int64)) (int64, error) {
	ctx, alive, stop := watch(ctx)
	defer stop()
	header := http.Header{}
	if begin > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", begin))
	}
	resp, err := c.do(ctx, http.MethodGet, address, header)
	if err != nil {
		var status *statusError
		if errors.As(err, &status) && status.status == http.StatusRequestedRangeNotSatisfiable {
			return 0, errors.Join(err, file.Truncate(0))
		}
		return begin, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		begin = 0 // the server sends all of it
	} else if from := resp.Header.Get("Content-Range"); !strings.HasPrefix(from, fmt.Sprintf("bytes %d-", begin)) {
		return begin, fmt.Errorf("%s: asked for the bytes from %d on, got %q", bare(resp.Request.URL), begin, brief(from))
	}
	if err := errors.Join(file.Truncate(begin), seek(file, begin)); err != nil {
		return begin, err
	}
	body := &reporter{from: resp.Body, done: begin, alive: alive, report: report}
	n, err := io.Copy(file, io.LimitReader(body, size-begin+1))
	switch end := begin + n; {
	case end > size:
		return end, fmt.Errorf("%s: sends more than the %d bytes that the hub names", bare(resp.Request.URL), size)
	case end == size:
		return end, nil
	case body.err == nil || errors.Is(body.err, io.EOF):
		if err != nil {
			return end, err // of writing
		}
		return end, temporary{error: fmt.Errorf("%s: cut at %d of %d bytes", bare(resp.Request.URL), end, size)}
	default:
		return end, classify(ctx, bare(resp.Request.URL), fmt.Errorf("cut at %d of %d bytes: %w", end, size, body.err))
	}
}

func seek(file *os.File, offset int64) error {
	_, err := file.Seek(offset, io.SeekStart)
	return err
}

// reporter reports what is read through it.
type reporter struct {
	from   io.Reader
	done   int64
	err    error // of the last read
	alive  func()
	report func(done int64)
}

func (r *reporter) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.err = err
	if n > 0 {
		r.done += int64(n)
		r.alive()
		r.report(r.done)
	}
	return n, err
}
