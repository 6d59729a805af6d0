package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const tinyModel = "../internal/model/testdata/tiny/llama-tied"

func TestConvert(t *testing.T) {
	output := filepath.Join(t.TempDir(), "out")
	args := []string{"convert", "--model", tinyModel, "--quantization", "int4", "--output", output}
	code, stdout, stderr := call(t, t.Context(), &fakeEngines{}, "", args...)
	if code != 0 || stdout != output+"\n" || !strings.HasPrefix(stderr, "converted 0.4 MB to 0.1 MB") {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	for _, name := range []string{"config.json", "model.safetensors", "tokenizer.json"} {
		if _, err := os.Stat(filepath.Join(output, name)); err != nil {
			t.Error(err)
		}
	}
	code, _, stderr = call(t, t.Context(), &fakeEngines{}, "", args...)
	if code != exitFailure || !strings.Contains(stderr, "minisgl convert: error: ") || !strings.Contains(stderr, "the output is there already") {
		t.Errorf("again: exit code %d, stderr %q", code, stderr)
	}
	args[len(args)-1] += "2"
	code, _, stderr = call(t, ended(), &fakeEngines{}, "", args...)
	if code != exitInterrupted || stderr != "minisgl: interrupted\n" {
		t.Errorf("interrupted: exit code %d, stderr %q", code, stderr)
	}
}

func TestConvertUsage(t *testing.T) {
	for args, want := range map[string]string{
		"convert":                               "--model is missing",
		"convert --model m":                     "--quantization must be int8 or int4",
		"convert --model m --q fp8":             `--quantization must be int8 or int4, got "fp8"`,
		"convert --model m --quantization int8": "--output is missing",
		"convert --model m --quantization int8 --output x yy": "unknown command",
	} {
		code, _, stderr := call(t, t.Context(), &fakeEngines{}, "", strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(stderr, want) || !strings.Contains(stderr, "See 'minisgl convert --help'.") {
			t.Errorf("%s: exit code %d, stderr %q", args, code, stderr)
		}
	}
}

func TestConvertHelp(t *testing.T) {
	code, stdout, _ := call(t, t.Context(), &fakeEngines{}, "", "convert", "--help")
	for _, want := range []string{"int8|int4", "(also --model)", "minisgl serve --model qwen3-int8", "computes with the codes as they are"} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d; help should contain %q:\n%s", code, want, stdout)
		}
	}
}
