"""Write tiny random models, with the logits and greedy tokens that transformers computes.

For each model of tiny_specs.py, go/internal/model/testdata/tiny/<name>/ receives a Hugging Face
directory (configuration, weights, tokenizer), the same weights as GGUF where the model asks for
it, and expected.json. A quantized form, <type>.gguf, has other weights, and so a file <type>.json
of what transformers computes with them. Weights are rounded to values that float16 and bfloat16 both hold, so every
stored form is the same model exactly. Run from the repository root with a Python that has torch,
transformers, tokenizers, safetensors and gguf; names choose some of the models:

    python scripts/golden/tiny_models.py [name ...]
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tiny_float8 import round_model, store
from tiny_gguf import save_gguf
from tiny_quants import kind_of
from tiny_quants import rounded as dequantized
from tiny_specs import SPECS, Spec
from tiny_tokenizer import BOS, EOS, save_tokenizer
from transformers import PreTrainedModel
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

OUT = Path(__file__).resolve().parents[2] / "go/internal/model/testdata/tiny"

PROMPT_LENGTHS = (1, 7, 40)
GREEDY_STEPS = 64

# transformers' names of a family's configuration and model.
CLASSES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
    "qwen3moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM"),
    "mistral": ("MistralConfig", "MistralForCausalLM"),
    "ministral3": ("Ministral3Config", "Ministral3ForCausalLM"),
    "mistral3": ("Mistral3Config", "Mistral3ForConditionalGeneration"),
    "phi3": ("Phi3Config", "Phi3ForCausalLM"),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM"),
}

# The smallest vision tower that transformers takes; nothing reads it.
VISION = {
    "model_type": "pixtral",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "head_dim": 16,
    "image_size": 16,
    "patch_size": 8,
}


def make_config(spec: Spec) -> transformers.PreTrainedConfig:
    """The configuration of a model, computed as plain matrix products."""
    ids = {"bos_token_id": BOS, "eos_token_id": EOS}
    plain = {"attn_implementation": "eager"}
    if spec.family == "qwen3moe":
        plain["experts_implementation"] = "eager"
    kind = getattr(transformers, CLASSES[spec.family][0])
    if spec.family != "mistral3":
        return kind(**plain, **ids, **spec.config)
    text = {"model_type": "mistral", **ids, **spec.config}
    tied = spec.config["tie_word_embeddings"]
    return kind(**plain, text_config=text, vision_config=VISION, tie_word_embeddings=tied, **ids)


def build_model(spec: Spec) -> PreTrainedModel:
    """A seeded model whose layers matter as much as its embedding.

    So greedy decoding doesn't repeat itself.
    """
    model = getattr(transformers, CLASSES[spec.family][1])(make_config(spec)).to(torch.float32).eval()
    rng = torch.Generator().manual_seed(spec.seed)
    gemma = spec.family == "gemma3"
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=rng)
            if "norm" in name or name.endswith("ln_pre.weight"):
                centre = 12 if gemma and ".post_" in name else 0 if gemma else 1
                value = centre + 0.2 * noise
            elif name.endswith(".bias"):
                value = 0.3 * noise
            elif "embed_tokens" in name or "lm_head" in name:
                value = 0.4 * noise
            else:
                value = noise * 2.0 / math.sqrt(parameter.shape[-1])
            parameter.copy_(value.to(torch.bfloat16).to(torch.float16).to(torch.float32))
        if gemma:  # the scale of the embeddings has the type of the checkpoint
            scale = torch.tensor(spec.config["hidden_size"] ** 0.5).to(getattr(torch, spec.dtype))
            model.model.embed_tokens.embed_scale.copy_(scale)
    return model


def freeze_rope(model: PreTrainedModel, length: int) -> None:
    """Keep the frequencies that transformers uses at a sequence of length positions.

    It would look at each sequence as it grows; a server with a cache of rotated keys decides once.
    """
    ids = torch.arange(length)[None] % 256
    own = model(ids, use_cache=False).logits
    rotary = model.model.rotary_emb
    init = ROPE_INIT_FUNCTIONS[rotary.rope_type]
    rotary.rope_type = "default"  # no updates any more
    rotary.inv_freq, rotary.attention_scaling = init(model.config, seq_len=length)
    frozen = model(ids, use_cache=False).logits
    assert torch.allclose(own, frozen, atol=2e-4), f"off by {(own - frozen).abs().max()} at that length"


def rounded(values: torch.Tensor) -> list[float]:
    """Values with seven significant digits."""
    return [float(f"{value:.7g}") for value in values.tolist()]


def expected(model: PreTrainedModel, spec: Spec) -> dict[str, Any]:
    """Logits at each prompt's first and last position; its greedy tokens with top-two gaps."""
    rng = np.random.default_rng(100 + spec.seed)
    prompts = []
    for length in PROMPT_LENGTHS:
        ids = [int(value) for value in rng.integers(0, 256, size=length)]
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
        greedy: list[int] = []
        gaps: list[float] = []
        for _ in range(GREEDY_STEPS):
            step = model(torch.tensor([ids + greedy]), use_cache=False).logits[0, -1]
            top = torch.topk(step, 2)
            greedy.append(int(top.indices[0]))
            gaps.append(float(f"{float(top.values[0] - top.values[1]):.4g}"))
        print(
            f"{spec.name}: prompt {length}, logit std {logits.std():.2f}, "
            f"{len(set(greedy))} distinct tokens, smallest gap {min(gaps)}"
        )
        prompts.append(
            {
                "ids": ids,
                "first": rounded(logits[0]),
                "last": rounded(logits[-1]),
                "greedy": greedy,
                "gaps": gaps,
            }
        )
    result: dict[str, Any] = {"dtype": "float32", "prompts": prompts}
    if spec.max_seq_len:
        result["max_seq_len"] = spec.max_seq_len
    return result


def save_sharded(model: PreTrainedModel, path: Path) -> None:
    """The model in three files with an index, beside the single one."""
    model.to(torch.float16).save_pretrained(path / "sharded", max_shard_size="90KB")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(path / name, path / "sharded")


def save_fused(model: PreTrainedModel, path: Path) -> None:
    """The model with the experts of a layer in one tensor, as transformers 5 has them in memory."""
    model.save_pretrained(path / "fused", save_original_format=False)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(path / name, path / "fused")


def save_quantized(model: PreTrainedModel, spec: Spec, path: Path, form: str) -> None:
    """A quantized GGUF file, and what transformers computes with its weights."""
    save_gguf(model, spec, path / f"{form}.gguf", form)
    exact = {name: parameter.clone() for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        values = parameter.numpy()
        parameter.copy_(torch.from_numpy(dequantized(values, kind_of(form, name, values))))
    write_expected(model, spec, path / f"{form}.json")
    for name, parameter in model.named_parameters():
        parameter.copy_(exact[name])


def write_expected(model: PreTrainedModel, spec: Spec, path: Path) -> None:
    """What transformers computes, as JSON."""
    text = json.dumps(expected(model, spec), separators=(",", ":"))
    path.write_text(text + "\n", encoding="utf-8")


def link(path: Path, home: str) -> None:
    """Replace weights and tokenizer, which are those of another model, by links."""
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        file = path / name
        assert name != "model.safetensors" or file.read_bytes() == (OUT / home / name).read_bytes(), file
        file.unlink()
        file.symlink_to(Path("..") / home / name)


@torch.no_grad()
def write(spec: Spec) -> None:
    """Write one model in all its forms."""
    path = OUT / spec.name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    model = build_model(spec)
    save_tokenizer(spec, path)
    for form in spec.gguf:
        if form.startswith("f"):
            save_gguf(model, spec, path / f"{form}.gguf", form)
        else:
            save_quantized(model, spec, path, form)
    if spec.float8:
        stored = round_model(model, spec.float8)
    if spec.max_seq_len:
        freeze_rope(model, spec.max_seq_len)
    write_expected(model, spec, path / "expected.json")
    # Casts round the frequencies, too, so nothing is computed from here on.
    model.to(getattr(torch, spec.dtype)).save_pretrained(path)
    if spec.float8:
        store(path, spec.float8, stored)
    if spec.fused:
        save_fused(model, path)
    if spec.sharded:
        save_sharded(model, path)
    for file in path.rglob("*.safetensors"):
        file.chmod(0o644)
    if spec.weights_of:
        link(path, spec.weights_of)


def main() -> None:
    """Write the models that the command line names, or all."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help="models of tiny_specs.py")
    names = parser.parse_args().names
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for spec in SPECS:
        if not names or spec.name in names:
            write(spec)


if __name__ == "__main__":
    main()
