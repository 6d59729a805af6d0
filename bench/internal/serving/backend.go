package serving

import (
	"fmt"
	"strings"

	"github.com/minisgl/minisgl/bench/internal/loadgen"
)

// backend is a kind of server.
type backend struct {
	name  string
	api   loadgen.API
	port  int
	flush string // path that empties the prefix cache; "" if there is none
}

// backends are sglang's names, older ones of them, and this project's.
var backends = []backend{
	{"sglang", loadgen.Generate, 30000, "/flush_cache"},
	{"sglang-native", loadgen.Generate, 30000, "/flush_cache"},
	{"sglang-oai", loadgen.Completions, 30000, "/flush_cache"},
	{"sglang-oai-chat", loadgen.Chat, 30000, "/flush_cache"},
	{"vllm", loadgen.Completions, 8000, "/reset_prefix_cache"},
	{"vllm-chat", loadgen.Chat, 8000, "/reset_prefix_cache"},
	{"openai", loadgen.Completions, 8000, ""},
	{"openai-chat", loadgen.Chat, 8000, ""},
	{"lmdeploy", loadgen.Completions, 23333, ""},
	{"lmdeploy-chat", loadgen.Chat, 23333, ""},
	{"trt", loadgen.TensorRT, 8000, ""},
	{"trt-llm", loadgen.TensorRT, 8000, ""},
	{"minisgl", loadgen.Chat, 1919, "/flush_cache"},
	{"minisgl-ws", loadgen.ChatSocket, 1919, "/flush_cache"},
}

func findBackend(name string) (backend, error) {
	var names []string
	for _, b := range backends {
		if b.name == name {
			return b, nil
		}
		names = append(names, b.name)
	}
	return backend{}, fmt.Errorf("invalid argument %q for \"--backend\" flag: want one of %s", name, strings.Join(names, ", "))
}
