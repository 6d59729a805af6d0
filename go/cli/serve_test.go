package cli

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/go/internal/server"
)

func TestServerConfig(t *testing.T) {
	defaults := server.Config{DrainTimeout: 30 * time.Second, MaxRunning: 256, Version: Version}
	withEnv := defaults
	defaults.Flags = map[string]string{}
	withEnv.Flags = map[string]string{}
	withEnv.APIKey = "from-env"
	tests := []struct {
		name, env string
		args      []string
		want      server.Config
	}{
		{"defaults", "", nil, defaults},
		{"key from the environment", "from-env", nil, withEnv},
		{"all", "from-env", []string{
			"--served-model-name", "m", "--strict-model", "--api-key", "k", "--cors-origin", "*", "--max-queued-requests", "5",
			"--max-running-requests", "3", "--drain-timeout", "2", "--tool-call-parser", "qwen", "--reasoning-parser", "qwen3",
		}, server.Config{
			DrainTimeout: 2 * time.Second, ModelName: "m", StrictModel: true, APIKey: "k", CORSOrigin: "*", MaxRunning: 3, MaxQueued: 5, Version: Version,
			ToolCallParser: "qwen", ReasoningParser: "qwen3",
			Flags: map[string]string{
				"served-model-name": "m", "strict-model": "true", "cors-origin": "*", "max-queued-requests": "5", "max-running-requests": "3", "drain-timeout": "2s",
				"tool-call-parser": "qwen", "reasoning-parser": "qwen3",
			},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv(apiKeyVariable, test.env)
			var f serveFlags
			flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
			f.register(flags)
			if err := flags.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			f.chosen = chosen(flags)
			if diff := cmp.Diff(test.want, f.config(nil)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
