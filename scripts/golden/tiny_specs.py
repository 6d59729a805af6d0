"""Which tiny models there are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Spec:
    """One tiny model: its configuration, and in which forms it is stored."""

    name: str
    config: dict[str, Any]
    seed: int
    family: str = "llama"
    dtype: str = "bfloat16"
    unused: int = 0  # ids at the end of the vocabulary that the tokenizer doesn't have
    gguf: tuple[str, ...] = ()  # names of types in lower case
    alignment: int = 0  # of the GGUF files; 0: the default
    sharded: bool = False
    float8: str = ""  # projections are of e4m3, with scales for "block"s of 128 x 128, or a "channel", a row
    fused: bool = False  # also with the experts of a layer in one tensor
    weights_of: str = ""  # the model whose weights and tokenizer these are, too: linked, not copied
    max_seq_len: int = 0  # of a server, where the rotary embedding depends on it


LLAMA = (
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
        dtype="float32",
        gguf=("f16", "q8_0", "q4_0", "q4_1"),
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
        dtype="float32",
        gguf=("f16",),
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
        gguf=("f16",),
    ),
)

# What most of the models below share.
SMALL = {
    "vocab_size": 264,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 256,
}

# The smallest sizes whose rows are whole blocks of the K types, but for one: o_proj reads 64 values.
BLOCKS = {
    **SMALL,
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "head_dim": 32,
    "tie_word_embeddings": True,
}

# Divisors of the frequencies of heads of 32 elements; LONG_FACTOR is for sequences beyond the original 16 positions.
SHORT_FACTOR = [1.0 + 0.02 * i for i in range(16)]
LONG_FACTOR = [1.0 + 0.3 * i for i in range(16)]


def rope(kind: str, **settings: Any) -> dict[str, Any]:
    """rope_parameters as transformers 5 writes them."""
    return {"rope_type": kind, "rope_theta": 10000.0, **settings}


DENSE = (
    Spec(
        "qwen2-tied",
        {
            **SMALL,
            "hidden_size": 64,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
            "rope_theta": 1e6,
            "use_sliding_window": False,
            "sliding_window": 8,
        },
        seed=11,
        family="qwen2",
        gguf=("f16",),
    ),
    Spec(
        "qwen2-window",
        {
            **SMALL,
            "num_attention_heads": 8,
            "head_dim": 32,
            "use_sliding_window": True,
            "sliding_window": 8,
            "max_window_layers": 1,
        },
        seed=12,
        family="qwen2",
    ),
    Spec(
        "qwen3-tied",
        {**SMALL, "hidden_size": 64, "head_dim": 32, "tie_word_embeddings": True, "rope_theta": 1e6},
        seed=13,
        family="qwen3",
        gguf=("f16", "q8_0", "q4_0", "q4_1"),
    ),
    Spec("qwen3-256", BLOCKS, seed=20, family="qwen3", gguf=("q4_k_m",)),
    Spec(
        "qwen3-headdim128",
        {**SMALL, "num_attention_heads": 2, "head_dim": 128, "attention_bias": True},
        seed=14,
        family="qwen3",
    ),
    Spec(
        "mistral-window",
        {**SMALL, "num_key_value_heads": 4, "head_dim": 64, "sliding_window": 8},
        seed=15,
        family="mistral",
    ),
    Spec(
        "ministral3",
        {
            **SMALL,
            "head_dim": 32,
            "sliding_window": None,
            "rope_parameters": rope(
                "yarn",
                factor=2.0,
                original_max_position_embeddings=128,
                mscale=1.0,
                mscale_all_dim=1.0,
                llama_4_scaling_beta=0.1,
            ),
        },
        seed=22,
        family="ministral3",
        gguf=("f16",),
    ),
    Spec("mistral3", {**SMALL, "head_dim": 32, "sliding_window": None}, seed=16, family="mistral3", gguf=("f16",)),
    Spec(
        "phi3",
        {**SMALL, "hidden_size": 64, "num_attention_heads": 2, "sliding_window": 8, "pad_token_id": 0},
        seed=17,
        family="phi3",
        gguf=("f16",),
    ),
    Spec(
        "phi3-longrope",
        {
            **SMALL,
            "hidden_size": 64,
            "num_attention_heads": 2,
            "sliding_window": None,
            "pad_token_id": 0,
            "max_position_embeddings": 128,
            "original_max_position_embeddings": 16,
            "rope_parameters": rope("longrope", short_factor=SHORT_FACTOR, long_factor=LONG_FACTOR),
        },
        seed=17,
        family="phi3",
        weights_of="phi3",
        max_seq_len=160,
    ),
    Spec(
        "phi3-partial",
        {
            **SMALL,
            "hidden_size": 64,
            "num_attention_heads": 2,
            "sliding_window": None,
            "pad_token_id": 0,
            "max_position_embeddings": 128,
            "original_max_position_embeddings": 16,
            "partial_rotary_factor": 0.75,
            "rope_parameters": rope("longrope", short_factor=SHORT_FACTOR[:12], long_factor=LONG_FACTOR[:12]),
        },
        seed=17,
        family="phi3",
        gguf=("f16",),
        weights_of="phi3",
        max_seq_len=160,
    ),
    Spec(
        "gemma3-tied",
        {
            **SMALL,
            "hidden_size": 64,
            "head_dim": 32,
            "query_pre_attn_scalar": 32,
            "tie_word_embeddings": True,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"],
            "pad_token_id": 0,
        },
        seed=18,
        family="gemma3",
        gguf=("f16",),
    ),
    Spec(
        "gemma3-scaled",
        {
            **SMALL,
            "hidden_size": 48,
            "head_dim": 64,
            "num_hidden_layers": 3,
            "query_pre_attn_scalar": 24,
            "tie_word_embeddings": True,
            "sliding_window": 8,
            "sliding_window_pattern": 3,
            "pad_token_id": 0,
            "rope_parameters": {
                "full_attention": rope("linear", factor=8.0),
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
        seed=19,
        family="gemma3",
    ),
)

MOE = (
    Spec(
        "qwen3moe-every-layer",
        {
            "vocab_size": 272,
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "intermediate_size": 96,
            "moe_intermediate_size": 32,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "norm_topk_prob": True,
            "tie_word_embeddings": False,
            "rope_theta": 1000000.0,
            "rms_norm_eps": 1e-6,
            "max_position_embeddings": 256,
        },
        seed=51,
        family="qwen3moe",
        gguf=("f16", "q4_0"),
    ),
    Spec(
        "qwen3moe-some-layers",
        {
            "vocab_size": 272,
            "hidden_size": 32,
            "num_hidden_layers": 4,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "intermediate_size": 56,
            "moe_intermediate_size": 20,
            "num_experts": 4,
            "num_experts_per_tok": 3,
            "norm_topk_prob": False,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [1],
            "tie_word_embeddings": True,
            "rope_theta": 10000.0,
            "rms_norm_eps": 1e-6,
            "max_position_embeddings": 256,
        },
        seed=52,
        family="qwen3moe",
        fused=True,
    ),
)

ROPE_BASE = Spec(
    "llama-rope",
    {**SMALL, "head_dim": 32, "tie_word_embeddings": True, "max_position_embeddings": 128},
    seed=21,
    gguf=("f32",),
)


def scaled(kind: str, settings: dict[str, Any], max_positions: int = 128, name: str = "", **others: Any) -> Spec:
    """ROPE_BASE with a scaled rotary embedding."""
    config = {**ROPE_BASE.config, "max_position_embeddings": max_positions, "rope_parameters": rope(kind, **settings)}
    forms = {"gguf": (), "weights_of": ROPE_BASE.name, **others}
    return replace(ROPE_BASE, name=f"llama-{name or kind}", config=config, **forms)


ROPES = (
    ROPE_BASE,
    scaled("linear", {"factor": 4.0}),
    scaled("dynamic", {"factor": 2.0}, max_positions=16, max_seq_len=160),
    scaled(
        "llama3",
        {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
        gguf=("f16",),
    ),
    scaled("yarn", {"factor": 4.0, "original_max_position_embeddings": 16}),
    scaled(
        "yarn",
        {"factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.3, "truncate": False},
        name="yarn-attention",
    ),
    scaled(
        "longrope",
        {
            "short_factor": SHORT_FACTOR,
            "long_factor": LONG_FACTOR,
            "factor": 4.0,
            "original_max_position_embeddings": 16,
        },
        max_seq_len=160,
    ),
)

LLAMA_BLOCKS = Spec("llama-256", BLOCKS, seed=4, gguf=("q4_k_m",), alignment=64)

FLOAT8 = (
    Spec(
        "qwen3-fp8",  # blocks that are not whole, of rows and of columns
        {**SMALL, "hidden_size": 192, "intermediate_size": 320, "num_key_value_heads": 2, "head_dim": 32},
        seed=41,
        family="qwen3",
        float8="block",
    ),
    Spec("llama-fp8", {**SMALL, "hidden_size": 64, "tie_word_embeddings": True}, seed=44, float8="channel"),
)

SPECS = (*LLAMA, LLAMA_BLOCKS, *DENSE, *MOE, *ROPES, *FLOAT8)
