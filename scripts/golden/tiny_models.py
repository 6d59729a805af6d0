"""Write tiny random Llama models, with the logits and greedy tokens that transformers computes.

For each model, go/internal/model/testdata/tiny/<name>/ receives a Hugging Face directory
(configuration, weights, tokenizer), the same weights as GGUF (f16.gguf, and f32.gguf for the
first), and expected.json. Weights are rounded to values that float16 and bfloat16 both hold, so
every stored form is the same model exactly. Run from the repository root with a Python that has
torch, transformers, tokenizers, safetensors and gguf:

    python scripts/golden/tiny_models.py
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

OUT = Path(__file__).resolve().parents[2] / "go/internal/model/testdata/tiny"

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BOS, EOS = 257, 258
PROMPT_LENGTHS = (1, 7, 40)
GREEDY_STEPS = 48

# Pairs of byte-level symbols that merge, in order of rank; a model takes as many as its vocabulary
# has room for.
MERGES = tuple(
    """
Ġ t|h e|i n|e r|a n|r e|o n|a t|e n|n d|Ġ a|e s|o r|Ġt he|in g|o u|i s|i t|a l|a r|s t|Ġ w|Ġ s|Ġ o
l e|v e|Ġ c|Ġ b|Ġ f|Ġ p|i on|Ġ in|Ġa nd|Ġ m|c h|l l|Ġt o|Ġo f|r o|i c|Ġ d|Ġ h|o m|u r|e t|a c|i l
s e|a d|e l|r i|Ġ l|u t|o t|i m|u s|a s|e c|o w|i d|Ġ e
""".strip()
    .replace("\n", "|")
    .split("|")
)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Spec:
    """One tiny model: its configuration, and in which forms it is stored."""

    name: str
    config: dict[str, Any]
    seed: int
    dtype: torch.dtype = torch.float32
    unused: int = 0  # ids at the end of the vocabulary that the tokenizer doesn't have
    gguf: tuple[str, ...] = field(default=("f16",))
    sharded: bool = False


SPECS = (
    Spec(
        "llama-tied",
        {
            "vocab_size": 320,
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 160,
            "tie_word_embeddings": True,
            "rope_theta": 10000.0,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 512,
        },
        seed=1,
        gguf=("f16", "f32"),
        sharded=True,
    ),
    Spec(
        "llama-untied-mha",
        {
            "vocab_size": 300,
            "hidden_size": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 3,
            "num_key_value_heads": 3,
            "intermediate_size": 104,
            "tie_word_embeddings": False,
            "rope_theta": 100000.0,
            "rms_norm_eps": 1e-6,
            "max_position_embeddings": 512,
        },
        seed=2,
        unused=8,
    ),
    Spec(
        "llama-headdim32",
        {
            "vocab_size": 272,
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "intermediate_size": 96,
            "tie_word_embeddings": False,
            "rope_theta": 10000.0,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 256,
            "attention_bias": True,
        },
        seed=3,
        dtype=torch.bfloat16,
    ),
)


def build_model(spec: Spec) -> LlamaForCausalLM:
    """A seeded model whose layers matter as much as its embedding.

    So greedy decoding doesn't repeat itself.
    """
    config = LlamaConfig(bos_token_id=BOS, eos_token_id=EOS, attn_implementation="eager", **spec.config)
    model = LlamaForCausalLM(config).to(torch.float32).eval()
    rng = torch.Generator().manual_seed(spec.seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=rng)
            if "norm" in name:
                value = 1 + 0.2 * noise
            elif name.endswith(".bias"):
                value = 0.3 * noise
            elif "embed_tokens" in name or "lm_head" in name:
                value = 0.4 * noise
            else:
                value = noise * 2.0 / math.sqrt(parameter.shape[1])
            parameter.copy_(value.to(torch.bfloat16).to(torch.float16).to(torch.float32))
    return model


def byte_symbols() -> list[str]:
    """The character that byte-level BPE writes for each byte (GPT-2's bytes_to_unicode)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    symbols, extra = [], 0
    for byte in range(256):
        if byte in printable:
            symbols.append(chr(byte))
        else:
            symbols.append(chr(256 + extra))
            extra += 1
    return symbols


def vocabulary(spec: Spec) -> tuple[list[str], list[str]]:
    """Tokens by id (bytes, specials, merges) and the merges; without the unused ids."""
    room = spec.config["vocab_size"] - 256 - len(SPECIALS) - spec.unused
    merges = list(MERGES[:room])
    tokens = byte_symbols() + list(SPECIALS) + [merge.replace(" ", "") for merge in merges]
    assert len(set(tokens)) == len(tokens) == spec.config["vocab_size"] - spec.unused, (
        spec.name,
        len(tokens),
    )
    return tokens, merges


def save_tokenizer(spec: Spec, path: Path) -> None:
    """tokenizer.json and tokenizer_config.json of a byte-level BPE with GPT-2's word pattern."""
    tokens, merges = vocabulary(spec)
    ids = {token: number for number, token in enumerate(tokens)}
    pairs = [(left, right) for left, right in (merge.split(" ") for merge in merges)]
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    tokenizer.save(str(path / "tokenizer.json"), pretty=False)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[BOS],
        "eos_token": tokens[EOS],
        "unk_token": tokens[256],
        "model_max_length": spec.config["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


def gguf_name(name: str) -> str:
    """The GGUF name of a Hugging Face Llama tensor."""
    whole = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in whole:
        return whole[name]
    parts = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    _, _, layer, rest = name.split(".", 3)
    module, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{parts[module]}.{kind}"


def permute(values: np.ndarray, heads: int) -> np.ndarray:
    """The row order of llama.cpp's q and k: rotary pairs of a head become neighbours."""
    shape = values.shape
    return values.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def add_metadata(writer: gguf.GGUFWriter, spec: Spec) -> None:
    """The keys that llama.cpp's converter writes for a Llama model with a byte-level tokenizer."""
    config = spec.config
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_name(spec.name)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_rope_dimension_count(head_dim)
    if "head_dim" in config:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    tokens, merges = vocabulary(spec)
    kinds = [gguf.TokenType.CONTROL if token in SPECIALS else gguf.TokenType.NORMAL for token in tokens]
    for number in range(len(tokens), config["vocab_size"]):
        tokens.append(f"[PAD{number}]")
        kinds.append(gguf.TokenType.UNUSED)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def save_gguf(model: LlamaForCausalLM, spec: Spec, path: Path, dtype: type[np.floating[Any]]) -> None:
    """The model as GGUF; vectors stay float32, as llama.cpp's converter keeps them."""
    writer = gguf.GGUFWriter(str(path), "llama")
    add_metadata(writer, spec)
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        if ".q_proj." in name:
            values = permute(values, spec.config["num_attention_heads"])
        elif ".k_proj." in name:
            values = permute(values, spec.config["num_key_value_heads"])
        stored = np.float32 if values.ndim == 1 else dtype
        writer.add_tensor(gguf_name(name), np.ascontiguousarray(values.astype(stored)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def rounded(values: torch.Tensor) -> list[float]:
    """Values with seven significant digits."""
    return [float(f"{value:.7g}") for value in values.tolist()]


@torch.no_grad()
def expected(model: LlamaForCausalLM, spec: Spec) -> dict[str, Any]:
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
    return {"dtype": "float32", "prompts": prompts}


def write(spec: Spec) -> None:
    """Write one model in all its forms."""
    path = OUT / spec.name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    model = build_model(spec)
    text = json.dumps(expected(model, spec), separators=(",", ":"))
    (path / "expected.json").write_text(text + "\n", encoding="utf-8")
    for form in spec.gguf:
        save_gguf(model, spec, path / f"{form}.gguf", np.float16 if form == "f16" else np.float32)
    save_tokenizer(spec, path)
    if spec.sharded:
        half = path / "sharded"
        model.to(torch.float16).save_pretrained(half, max_shard_size="90KB")
        shutil.copy(path / "tokenizer.json", half)
        shutil.copy(path / "tokenizer_config.json", half)
        model.to(torch.float32)
    model.to(spec.dtype).save_pretrained(path)
    for file in path.rglob("*.safetensors"):
        file.chmod(0o644)


def main() -> None:
    """Write all models."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for spec in SPECS:
        write(spec)


if __name__ == "__main__":
    main()
