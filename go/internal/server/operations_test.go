package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// TestRequestTimeout: a request that takes too long is told so, in a stream that
// has begun, too, and leaves the engine.
func TestRequestTimeout(t *testing.T) {
	for name, test := range map[string]struct {
		body   string
		events int // that come in time
		status int
	}{
		"whole":            {``, 0, http.StatusGatewayTimeout},
		"whole, begun":     {``, 2, http.StatusGatewayTimeout},
		"stream":           {`"stream":true,`, 0, http.StatusGatewayTimeout},
		"stream, begun":    {`"stream":true,`, 2, http.StatusOK},
		"several, begun":   {`"n":2,`, 2, http.StatusGatewayTimeout},
		"several, streams": {`"n":2,"stream":true,`, 2, http.StatusOK},
	} {
		e := newFake(token("a", 1), token("b", 2), token("c", 3), token("d", 4), atEOS(4))
		e.step = make(chan struct{}, test.events)
		for range test.events {
			e.step <- struct{}{}
		}
		s := newServer(t, e, Config{RequestTimeout: 50 * time.Millisecond})
		w := do(s, "POST", chatPath, `{`+test.body+hi+`}`)
		if w.Code != test.status || !strings.Contains(w.Body.String(), `"code":"timeout"`) || strings.Contains(w.Body.String(), "[DONE]") {
			t.Errorf("%s: status %d: %s", name, w.Code, w.Body)
		}
		if e.live.Load() != 0 || e.aborted.Load() == 0 {
			t.Errorf("%s: %d requests run on, %d were aborted", name, e.live.Load(), e.aborted.Load())
		}
	}
	s := newServer(t, newFake(token("a", 1), atEOS(1)), Config{RequestTimeout: time.Minute})
	if w := do(s, "POST", chatPath, `{`+hi+`}`); w.Code != 200 {
		t.Errorf("in time: status %d: %s", w.Code, w.Body)
	}
}

// certificate writes a self-signed certificate for 127.0.0.1 and its key.
func certificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, bytes []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certFile, keyFile = write("c.pem", "CERTIFICATE", der), write("k.pem", "PRIVATE KEY", keyDER)
	pool = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(parsed)
	return certFile, keyFile, pool
}

func TestTLS(t *testing.T) {
	certFile, keyFile, pool := certificate(t)
	r := start(t, newServer(t, nil, Config{CertFile: certFile, KeyFile: keyFile}), loaded(newFake(token("a", 1), atEOS(1))))
	transport := r.client.Transport.(*http.Transport)
	transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	transport.ForceAttemptHTTP2 = true
	r.url = strings.Replace(r.url, "http:", "https:", 1)
	eventually(t, "ready", func() bool { return r.health(t) == 200 })
	resp, err := post(t, t.Context(), r.client, r.url, `"stream":true,`)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !strings.HasSuffix(string(body), "data: [DONE]\n\n") || resp.ProtoMajor != 2 {
		t.Errorf("%s: %v: %s", resp.Proto, err, body)
	}
	r.stop()
	if err := r.wait(t); err != nil {
		t.Error(err)
	}
	bad := start(t, newServer(t, nil, Config{CertFile: keyFile, KeyFile: certFile}), loaded(newFake()))
	if err := bad.wait(t); err == nil || !strings.Contains(err.Error(), keyFile) {
		t.Errorf("with the files exchanged: %v", err)
	}
}

func TestWarmUpFails(t *testing.T) {
	e := newFake()
	e.streamErr = errors.New("no memory")
	r := start(t, newServer(t, nil, Config{}), func(context.Context) (Engine, error) { return e, nil })
	if err := r.wait(t); err == nil || !strings.Contains(err.Error(), "the model does not run: no memory") || !e.closed.Load() {
		t.Errorf("got %v, closed %v", err, e.closed.Load())
	}
}

func TestProfile(t *testing.T) {
	s := newServer(t, newFake(), Config{ProfileDir: t.TempDir()})
	if w := do(s, "POST", "/stop_profile", ``); w.Code != http.StatusConflict {
		t.Errorf("a stop without a start: %d %s", w.Code, w.Body)
	}
	if w := do(s, "POST", "/start_profile", `{"output_dir":"/etc","activities":["GPU"]}`); w.Code != 200 {
		t.Fatalf("start: %d %s", w.Code, w.Body)
	}
	if w := do(s, "POST", "/start_profile", ``); w.Code != http.StatusConflict {
		t.Errorf("a second start: %d %s", w.Code, w.Body)
	}
	w := do(s, "POST", "/stop_profile", ``)
	var files profileFiles
	if err := json.Unmarshal(w.Body.Bytes(), &files); err != nil || w.Code != 200 || files.Batches != 2 {
		t.Fatalf("stop: %d %s: %v", w.Code, w.Body, err)
	}
	cpu, err := os.ReadFile(files.CPUProfile)
	if err != nil || !strings.HasPrefix(string(cpu), "\x1f\x8b") || filepath.Dir(files.CPUProfile) != s.cfg.ProfileDir {
		t.Errorf("%s: %v, begins with %.2q, not as a compressed profile", files.CPUProfile, err, cpu)
	}
	trace, err := os.ReadFile(files.Trace)
	if err != nil {
		t.Fatal(err)
	}
	want := fromJSON(t, `[{"name":"prefill","ph":"X","ts":0,"dur":1000,"pid":1,"tid":1,"args":{"requests":1,"tokens":3,"sampled":1}},
		{"name":"decode","ph":"X","ts":2000,"dur":1000,"pid":1,"tid":1,"args":{"requests":1,"tokens":1,"sampled":1}}]`)
	if diff := cmp.Diff(want, within(t, string(trace), "traceEvents")); diff != "" {
		t.Error(diff)
	}
}

// TestTraces: a collector gets the spans of each request when the server ends.
func TestTraces(t *testing.T) {
	var mu sync.Mutex
	var names []string
	collect := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &req); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range req.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, span := range ss.Spans {
					names = append(names, span.Name)
				}
			}
		}
	}))
	defer collect.Close()
	first := token("a", 1)
	first.Begun = time.Now()
	end := atEOS(1)
	end.Begun = first.Begun
	r := start(t, newServer(t, nil, Config{TracesEndpoint: collect.URL}), loaded(newFake(first, end)))
	eventually(t, "ready", func() bool { return r.health(t) == 200 })
	resp, err := post(t, t.Context(), r.client, r.url, ``)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	r.stop()
	if err := r.wait(t); err != nil {
		t.Error(err)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"decode", "llm_request", "prefill", "queue"}, names); diff != "" {
		t.Error(diff)
	}
	bad := start(t, newServer(t, nil, Config{TracesEndpoint: "host:4318"}), loaded(newFake()))
	if err := bad.wait(t); err == nil || !strings.Contains(err.Error(), "host:4318") {
		t.Errorf("an endpoint that is no URL: %v", err)
	}
}
