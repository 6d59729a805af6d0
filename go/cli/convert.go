package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/minisgl/minisgl/go/llm"
)

func convertCommand(p *program) *cobra.Command {
	var c llm.Conversion
	cmd := &cobra.Command{
		Use:   "convert --model MODEL --quantization int8|int4 --output DIR",
		Short: "Quantize a model once, save it, and print its path",
		Long: `Quantize a model's weights once and save them as a directory that --model takes.

int8 halves the files of a bfloat16 model and hardly changes its answers. int4
brings them to about a third and costs quality, in small models more than in
large ones. Each run of 32 values of a row shares one scale. Embeddings and the
output head get 8 bits in both; norms, biases and the routers of experts stay as
they are.

The output holds the tokenizer and the configuration too, so it is all that a
run needs; the original is only read. A run computes with the codes as they are,
unless --dtype is float32 or --quantization is none. A GGUF file is not converted:
it can be run as it is. (serve --quantization int8 does the same at every start.)`,
		Example: `  minisgl convert --model Qwen/Qwen3-0.6B --quantization int8 --output qwen3-int8
  minisgl serve --model qwen3-int8`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkConversion(c); err != nil {
				return err
			}
			if err := llm.Convert(cmd.Context(), c, p.stderr); err != nil {
				return err
			}
			_, err := fmt.Fprintln(p.stdout, c.Output)
			return err
		},
	}
	cmd.Flags().StringVar(&c.Model, "model-path", "", "the model: a directory, or a hub's org/name[@revision]")
	cmd.Flags().StringVar(&c.ModelSource, "model-source", "huggingface", sourceUsage)
	cmd.Flags().StringVar(&c.Quantization, "quantization", "", "int8 or int4")
	cmd.Flags().StringVar(&c.Output, "output", "", "the directory to make; it must not exist")
	acceptSettings(cmd)
	acceptNames(cmd, map[string][]string{"model-path": {"model"}})
	return cmd
}

func checkConversion(c llm.Conversion) error {
	switch {
	case c.Model == "":
		return usageErrorf("--model is missing: a directory, or a hub's org/name")
	case c.Quantization != llm.Int8 && c.Quantization != llm.Int4:
		return usageErrorf("--quantization must be %s or %s, got %q", llm.Int8, llm.Int4, c.Quantization)
	case c.Output == "":
		return usageErrorf("--output is missing: the directory to make")
	}
	return nil
}
