"""The byte-level BPE tokenizer of the tiny models."""

from __future__ import annotations

import json
from pathlib import Path

from tiny_specs import Spec
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BOS, EOS = 257, 258

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
