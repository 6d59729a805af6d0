package llm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/device/cpu"
	"github.com/minisgl/minisgl/go/internal/device/ref"
	"github.com/minisgl/minisgl/go/internal/engine"
	"github.com/minisgl/minisgl/go/internal/gpu"
	"github.com/minisgl/minisgl/go/internal/model"
	"github.com/minisgl/minisgl/go/internal/ops"
	"github.com/minisgl/minisgl/go/internal/weights"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// loaded is a model that is ready to run.
type loaded struct {
	info Info
	tok  *tokenizer.Tokenizer
	devs []device.Device // one for each rank
	gpus bool            // they are GPUs
	eng  *engine.Engine
	eos  []int32
	ids  int // that have a token: those below

	grammars grammars
}

// Resolve turns a model's name into a path: a directory or a .gguf file as it
// is, a known name (smollm2-135m) by fetching it once into the user's cache, the
// org/name[@revision] of a hub (source, as Config.ModelSource) by fetching what
// the cache lacks of its newest commit. Progress is written to w.
func Resolve(ctx context.Context, name, source string, w io.Writer) (string, error) {
	return weights.Resolve(ctx, weights.Ref{Model: name, Source: source, Update: true}, w)
}

// OpList prints the operations of a forward pass of the named model: a prompt of
// three tokens. It needs no weights.
func OpList(ctx context.Context, name, source string) (string, error) {
	_, mc, err := openModel(ctx, Config{Model: name, ModelSource: source, DummyWeight: true})
	if err != nil {
		return "", err
	}
	return model.OpList(mc)
}

// load makes a model ready. Whatever it opened is closed again if it fails.
func load(ctx context.Context, cfg Config) (m *loaded, err error) {
	start := time.Now()
	ck, mc, err := openModel(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	m = &loaded{info: Info{Model: cfg.Model, Path: ck.Path, Architecture: mc.Architecture, PageSize: cfg.PageSize,
		SpeculativeAlgorithm: cfg.SpeculativeAlgorithm, SpeculativeDraftTokens: cfg.SpeculativeDraftTokens}}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	if m.tok, err = openTokenizer(ck); err != nil {
		return m, err
	}
	if err = setTemplate(m.tok, cfg.ChatTemplate); err != nil {
		return m, err
	}
	if m.eos, err = endTokens(ck, mc, m.tok); err != nil {
		return m, err
	}
	if m.info.Defaults, err = samplingDefaults(ck.Generation, cfg.Logger); err != nil {
		return m, err
	}
	if err := mc.CheckShards(cfg.TPSize); err != nil {
		return m, core.Invalid("tp_size", "%v", err)
	}
	if err := m.openDevices(cfg, mc); err != nil {
		return m, err
	}
	if err := m.build(cfg, mc, ck); err != nil {
		return m, err
	}
	m.info.LoadTime = time.Since(start)
	cfg.Logger.Debug("model loaded", "model", cfg.Model, "architecture", mc.Architecture, "dtype", m.info.DType,
		"device", m.info.Device, "max_seq_len", m.info.MaxSeqLen, "pages", m.info.NumPages, "page_size", cfg.PageSize,
		"seconds", m.info.LoadTime.Seconds())
	return m, ctx.Err()
}

func openModel(ctx context.Context, cfg Config) (*weights.Checkpoint, model.Config, error) {
	ref := weights.Ref{Model: cfg.Model, Source: cfg.ModelSource, NoWeights: cfg.DummyWeight}
	path, err := weights.Resolve(ctx, ref, os.Stderr)
	if err != nil {
		return nil, model.Config{}, err
	}
	open := weights.Open
	if cfg.DummyWeight {
		open = weights.OpenBare
	}
	ck, err := open(path)
	if err != nil {
		return nil, model.Config{}, err
	}
	mc, err := model.ParseConfig(ck.Config)
	if err != nil {
		return nil, mc, errors.Join(fmt.Errorf("llm: %s: %w", path, err), ck.Close())
	}
	return ck, mc, nil
}

// build sizes the engine and loads the weights.
func (m *loaded) build(cfg Config, mc model.Config, ck *weights.Checkpoint) error {
	ec := m.engineConfig(cfg, mc)
	bound := ""
	if ec.NumPages == 0 && !m.gpus { // GPUs are asked when the weights are there
		var err error
		if ec.NumPages, bound, err = engine.ChooseNumPages(ec, mc, ck); err != nil {
			return err
		}
	}
	longest := ec.MaxSeqLen
	if ec.NumPages > 0 {
		ec.MaxSeqLen = min(longest, ec.NumPages*cfg.PageSize)
	}
	var src engine.Source = ck
	if cfg.DummyWeight {
		src = weights.Dummy{}
	}
	var err error
	if m.eng, err = engine.New(ec, mc, src, m.devs...); err != nil {
		return err
	}
	if ec.NumPages == 0 {
		ec.NumPages, bound = m.eng.Pages()
	}
	if bound != "" {
		cfg.Logger.Info("KV cache", "pages", ec.NumPages, "page_size", cfg.PageSize, "MiB", engine.PageBytes(mc, cfg.PageSize, ec.KVDType)*int64(ec.NumPages)>>20, "chosen_by", bound)
	}
	m.ids = ec.Vocab
	m.info.DType, m.info.KVCacheDType = typeNames[ec.DType], typeNames[ec.KVDType]
	m.info.VocabSize, m.info.MaxSeqLen, m.info.NumPages = mc.VocabSize, min(longest, ec.NumPages*cfg.PageSize), ec.NumPages
	m.info.WeightBytes, m.info.FlopsPerToken = engine.StepBytes(ec, mc, ck), engine.FlopsPerToken(mc)
	m.info.TokenBytes = engine.PageBytes(mc, 1, ec.KVDType)
	reportUnused(m.eng.Unused(ck.Names()), cfg.Logger)
	return nil
}

// engineConfig is the engine's configuration, all but the number of pages if that is to
// be chosen.
func (m *loaded) engineConfig(cfg Config, mc model.Config) engine.Config {
	dt, kv := cfg.types(mc.DType)
	seqLen := mc.MaxPositions
	if cfg.MaxSeqLenOverride > 0 {
		seqLen = cfg.MaxSeqLenOverride
	}
	ec := engine.Config{
		DType: dt, KVDType: kv, Quantization: cfg.quantization(), HasFloat8: m.gpus || cfg.Device == "ref", PageSize: cfg.PageSize, NumPages: cfg.NumPageOverride, MemoryRatio: cfg.MemoryRatio,
		MaxRunning: cfg.MaxRunningReq, MaxDraft: cfg.SpeculativeDraftTokens, MaxExtendTokens: cfg.MaxExtendTokens,
		MaxSeqLen: seqLen, RopeLength: seqLen, Vocab: min(mc.VocabSize, m.tok.VocabSize()),
	}
	if m.gpus {
		ec.GraphSizes = cfg.graphSizes()
	}
	return ec
}

// graphSizes are the numbers of requests of decoding batches that a GPU has graphs for.
func (c Config) graphSizes() []int {
	if len(c.CUDAGraphBS) > 0 {
		return c.CUDAGraphBS
	}
	return engine.GraphSizes(*c.CUDAGraphMaxBS)
}

var typeNames = map[ops.DType]string{ops.F32: "float32", ops.BF16: "bfloat16", ops.F16: "float16", ops.I8: "int8", ops.F8: "fp8"}

// types returns the types of weights and of the KV cache, for a checkpoint of the
// named type.
func (c Config) types(stored string) (weights, kv ops.DType) {
	named := func(name string, auto ops.DType) ops.DType {
		for dt, known := range typeNames {
			if known == name {
				return dt
			}
		}
		return auto
	}
	weights = named(c.DType, named(stored, ops.BF16))
	return weights, named(c.KVCacheDType, weights)
}

// quantization returns how the weights are computed with.
func (c Config) quantization() engine.Quantization {
	switch {
	case c.Quantization == "int8":
		return engine.Int8
	case c.Quantization == "fp8":
		return engine.Float8
	case c.Quantization == "int4":
		return engine.Int4
	case c.Quantization == "none" || c.DType == "float32":
		return engine.Dequantized
	}
	return engine.AsStored
}

// reportUnused tells which of a checkpoint's tensors the model has no use for:
// all is well for the vision part of a model that reads text only, but it is how
// a wrong architecture shows.
func reportUnused(names []string, log *slog.Logger) {
	const shown = 4
	names = slices.DeleteFunc(names, func(name string) bool {
		return strings.HasSuffix(name, "rotary_emb.inv_freq") // old checkpoints hold what the configuration says
	})
	if len(names) > 0 {
		log.Warn("the checkpoint has tensors that the model does not use", "count", len(names), "first", names[:min(len(names), shown)])
	}
}

func (m *loaded) close() error {
	if m.eng != nil {
		m.eng.Close()
	}
	var errs []error
	for _, dev := range m.devs {
		errs = append(errs, dev.Close())
	}
	if m.tok != nil {
		errs = append(errs, m.tok.Close())
	}
	return errors.Join(errs...)
}

// openDevices starts the devices that the configuration names, one for each
// rank. auto is a GPU if there is one and the program was built for it.
func (m *loaded) openDevices(cfg Config, mc model.Config) error {
	switch cfg.Device {
	case "ref":
		for range cfg.TPSize {
			m.devs = append(m.devs, ref.New())
		}
		m.info.Device, m.info.Threads = "ref", cfg.TPSize
		return nil
	case "auto", "cuda":
		devs, name, err := openGPUs(cfg.TPSize, slices.Max(append([]int{0}, cfg.graphSizes()...)))
		if err == nil {
			m.devs, m.gpus, m.info.Device, m.info.Threads = devs, true, fmt.Sprintf("cuda (%s)", name), cfg.TPSize
			return cfg.useAttention(mc, devs)
		}
		if cfg.Device == "cuda" {
			return core.Invalid("device", "no GPU can be used: %v", err)
		}
		level := slog.LevelDebug
		if gpu.Declined != nil || gpu.Open != nil { // built for GPUs
			level = slog.LevelInfo
		}
		cfg.Logger.Log(context.Background(), level, "no GPU is used", "reason", err)
	}
	return m.openCPUs(cfg)
}

// openCPUs starts CPU devices; the ranks share the threads.
func (m *loaded) openCPUs(cfg Config) error {
	if cfg.KVCacheDType == "fp8" {
		return core.Invalid("kv_cache_dtype", "fp8 is for a GPU, and the device is a CPU; int8 takes as little memory")
	}
	if cfg.Quantization == "fp8" {
		return core.Invalid("quantization", "fp8 is for a GPU, and the device is a CPU; int8 takes as little memory")
	}
	threads := cfg.Threads
	if threads == 0 {
		threads = cpu.Cores()
	}
	for range cfg.TPSize {
		d, err := cpu.New(max(1, threads/cfg.TPSize))
		if err != nil {
			return err
		}
		m.devs = append(m.devs, d)
		m.info.Device = fmt.Sprintf("cpu (%s)", d.ISA())
		m.info.Threads += d.Threads()
	}
	return nil
}

// maxTemplateFile bounds Config.ChatTemplate's file, in bytes.
const maxTemplateFile = 1 << 20

// setTemplate gives a tokenizer the chat template of a file, if there is one.
func setTemplate(tok *tokenizer.Tokenizer, path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxTemplateFile {
		return core.Invalid("chat_template", "must name a file of at most %d bytes, got %q", maxTemplateFile, path)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return core.Invalid("chat_template", "%v", err)
	}
	if err := tok.SetChatTemplate(string(source)); err != nil {
		return core.Invalid("chat_template", "%s: %v", path, err)
	}
	return nil
}

// openTokenizer finds a checkpoint's tokenizer: files beside the weights, or a
// GGUF file's metadata.
func openTokenizer(ck *weights.Checkpoint) (*tokenizer.Tokenizer, error) {
	if ck.Metadata == nil {
		return tokenizer.Open(ck.TokenizerDir)
	}
	v, err := vocabulary(ck.Metadata)
	if err != nil {
		return nil, fmt.Errorf("llm: %s: %w", ck.Path, err)
	}
	return tokenizer.FromVocab(v)
}

// vocabulary reads the tokenizer.* keys of a GGUF file.
func vocabulary(m *weights.Metadata) (tokenizer.Vocab, error) {
	const prefix = "tokenizer.ggml."
	id := func(key string) int32 {
		if n, ok := m.Int(prefix + key); ok {
			return int32(n)
		}
		return -1
	}
	flag := func(key string) bool {
		b, _ := m.Bool(prefix + key)
		return b
	}
	v := tokenizer.Vocab{
		BOS: id("bos_token_id"), EOS: id("eos_token_id"), UNK: id("unknown_token_id"), PAD: id("padding_token_id"),
		AddBOS: flag("add_bos_token"), AddEOS: flag("add_eos_token"), AddSpacePrefix: flag("add_space_prefix"),
	}
	var ok bool
	if v.Model, ok = m.String(prefix + "model"); !ok {
		return v, errors.New("the file has no tokenizer (tokenizer.ggml.model)")
	}
	if v.Tokens, ok = m.Strings(prefix + "tokens"); !ok {
		return v, errors.New("the file has no vocabulary (tokenizer.ggml.tokens)")
	}
	v.Pre, _ = m.String(prefix + "pre")
	v.Merges, _ = m.Strings(prefix + "merges")
	v.ChatTemplate, _ = m.String("tokenizer.chat_template")
	scores, _ := m.Floats(prefix + "scores")
	for _, s := range scores {
		v.Scores = append(v.Scores, float32(s))
	}
	types, _ := m.Ints(prefix + "token_type")
	for _, t := range types {
		v.Types = append(v.Types, int32(t))
	}
	return v, nil
}
