package cli

import (
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// positive is a flag's integer of at least 1. Its zero value, which can't be
// given, means that the flag is absent.
type positive int

func (p *positive) String() string { return strconv.Itoa(int(*p)) }
func (p *positive) Type() string   { return "int" }

func (p *positive) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return fmt.Errorf("must be an integer of at least 1")
	}
	*p = positive(n)
	return nil
}

// seconds is a flag's duration: a number of seconds, or 1m30s.
type seconds time.Duration

func (d *seconds) String() string { return time.Duration(*d).String() }
func (d *seconds) Type() string   { return "seconds" }

func (d *seconds) Set(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil {
		v, err = time.ParseDuration(s + "s")
	}
	if err != nil || v < 0 {
		return fmt.Errorf("must be a number of seconds, or a duration such as 1m30s")
	}
	*d = seconds(v)
	return nil
}

// address is a flag's server: http://127.0.0.1:1919, or with /v1 at the end.
type address struct{ url.URL }

func (a *address) Type() string { return "url" }

func (a *address) Set(s string) error {
	u, err := url.Parse(strings.TrimSuffix(strings.TrimRight(s, "/"), "/v1"))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("must be like http://127.0.0.1:1919")
	}
	a.URL = *u
	return nil
}

// level is a flag's log level.
type level slog.Level

func (l *level) String() string { return strings.ToLower(slog.Level(*l).String()) }
func (l *level) Type() string   { return "level" }

// quiet makes warning the default, for commands whose output a person reads.
func (l *level) quiet() { *l = level(slog.LevelWarn) }

func (l *level) Set(s string) error {
	switch strings.ToLower(s) {
	case "debug":
		*l = level(slog.LevelDebug)
	case "info":
		*l = level(slog.LevelInfo)
	case "warning", "warn":
		*l = level(slog.LevelWarn)
	case "error", "critical":
		*l = level(slog.LevelError)
	default:
		return fmt.Errorf("must be debug, info, warning or error")
	}
	return nil
}
