package loadgen

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	mostAhead    = 1024 // connections opened before a run
	aheadTimeout = 5 * time.Second
)

// dialFunc opens a connection, as net.Dialer does.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer opens connections, some of them before the requests that take them.
type dialer struct {
	dial dialFunc

	mu    sync.Mutex
	open  int        // connections that nobody has closed
	addr  string     // that those ahead lead to
	ahead []net.Conn // no request has taken these yet
}

// connect takes a connection that was opened ahead, else it opens one.
func (d *dialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	if conn := d.take(addr); conn != nil {
		return conn, nil
	}
	conn, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open++
	return &countedConn{Conn: conn, dialer: d}, nil
}

func (d *dialer) take(addr string) net.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := len(d.ahead) - 1
	if last < 0 || addr != d.addr {
		return nil
	}
	conn := d.ahead[last]
	d.ahead = d.ahead[:last]
	return conn
}

// openAhead opens connections until there are n, idle ones of earlier requests
// among them. What cannot be opened is left to the requests, which report why.
func (d *dialer) openAhead(ctx context.Context, addr string, n int) {
	d.closeAhead()
	ctx, cancel := context.WithTimeout(ctx, aheadTimeout)
	defer cancel()
	conns := make([]net.Conn, max(min(n, mostAhead)-d.count(), 0))
	var wg sync.WaitGroup
	for i := range conns {
		wg.Go(func() { conns[i], _ = d.connect(ctx, "tcp", addr) })
	}
	wg.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addr = addr
	for _, conn := range conns {
		if conn != nil {
			d.ahead = append(d.ahead, conn)
		}
	}
}

// closeAhead closes the connections that no request took.
func (d *dialer) closeAhead() {
	d.mu.Lock()
	unused := d.ahead
	d.ahead = nil
	d.mu.Unlock()
	for _, conn := range unused {
		_ = conn.Close() // nothing was sent
	}
}

func (d *dialer) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// countedConn tells its dialer when it is closed.
type countedConn struct {
	net.Conn
	dialer *dialer
	once   sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() {
		c.dialer.mu.Lock()
		defer c.dialer.mu.Unlock()
		c.dialer.open--
	})
	return c.Conn.Close()
}

// dialAddress returns the address that requests for a URL connect to; "" if that
// is a proxy's, or the URL none.
func dialAddress(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); proxy != nil || err != nil {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
