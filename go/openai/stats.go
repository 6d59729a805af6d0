package openai

// Values of StatsHello.Type and ServerStats.Type.
const (
	StatsTypeHello = "hello"
	StatsTypeStats = "stats"
)

// StatsHello is the first message of /ws/stats.
type StatsHello struct {
	V    int    `json:"v"`
	Type string `json:"type"`

	Version  string            `json:"version"`
	Started  float64           `json:"started"` // Unix time, seconds
	Model    StatsModel        `json:"model"`
	Flags    map[string]string `json:"flags"`    // the server's options that are not the default
	Interval float64           `json:"interval"` // seconds between two ServerStats
	Window   float64           `json:"window"`   // seconds that percentiles look back
	Keep     int               `json:"keep"`     // how many ServerStats History may have
	History  []ServerStats     `json:"history"`  // the oldest first
}

// StatsModel tells what is served.
type StatsModel struct {
	Name          string  `json:"name"`
	Path          string  `json:"path"`
	Architecture  string  `json:"architecture"`
	DType         string  `json:"dtype"`
	KVCacheDType  string  `json:"kv_cache_dtype"`
	Device        string  `json:"device"`
	Threads       int     `json:"threads"`
	ContextLength int     `json:"context_length"` // tokens, prompt and answer together
	PageSize      int     `json:"page_size"`      // tokens
	MaxRunning    int     `json:"max_running"`    // requests
	WeightBytes   int64   `json:"weight_bytes"`
	LoadSeconds   float64 `json:"load_seconds"`
	Speculation   string  `json:"speculation"` // the algorithm that guesses tokens; "" if none does
}

// ServerStats is the state of a server at one moment, with rates since the
// ServerStats before it.
type ServerStats struct {
	V      int     `json:"v"`
	Type   string  `json:"type"`
	Time   float64 `json:"time"`   // Unix time, seconds
	Uptime float64 `json:"uptime"` // seconds
	Status string  `json:"status"` // ok, draining or failed

	PrefillRate float64 `json:"prefill_tokens_per_second"` // prompt tokens computed
	DecodeRate  float64 `json:"decode_tokens_per_second"`  // tokens generated

	Running int `json:"running"` // requests
	Queued  int `json:"queued"`  // requests

	Pages    PageStats    `json:"pages"`
	Cache    CacheStats   `json:"cache"`
	Requests RequestStats `json:"requests"`
	Tokens   TokenStats   `json:"tokens"`

	TTFT *Percentiles `json:"ttft_ms"` // null if there was no first token in the window
	ITL  *Percentiles `json:"itl_ms"`
}

// PageStats tells who has the pages of the KV cache: Free, Cached and InUse make
// Total.
type PageStats struct {
	Total  int `json:"total"`
	Free   int `json:"free"`
	Cached int `json:"cached"` // kept by the prefix cache, and free for the taking
	InUse  int `json:"in_use"` // held by running requests
}

// CacheStats is about the prefix cache.
type CacheStats struct {
	HitRate float64 `json:"hit_rate"` // share of the prompt tokens found in it, since the start
	Nodes   int     `json:"nodes"`    // of the radix tree, the root not counted
	Tokens  int     `json:"tokens"`   // in the radix tree
}

// RequestStats counts requests since the start.
type RequestStats struct {
	Started     int64 `json:"started"`
	Finished    int64 `json:"finished"`
	Aborted     int64 `json:"aborted"`
	Preemptions int64 `json:"preemptions"` // times that one was put back for want of pages
}

// TokenStats counts tokens since the start.
type TokenStats struct {
	Prompt     int64 `json:"prompt"` // computed or found in the prefix cache
	Cached     int64 `json:"cached"` // of them, found
	Completion int64 `json:"completion"`
	Draft      int64 `json:"draft"`    // guessed by speculation, and verified
	Accepted   int64 `json:"accepted"` // of them, right
}

// Percentiles of the times in the window, in milliseconds.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}
