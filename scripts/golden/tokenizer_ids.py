# ruff: noqa: RUF001, W291 (the sample texts hold odd characters and trailing spaces on purpose)
"""Make the golden token ids of go/tokenizer.

Writes, under the output directory:

- smollm2.json.gz: the vocabulary of SmolLM2 as its GGUF file gives it;
- smollm2_ids.json.gz: mixed strings and their ids, for SmolLM2's own way to cut
  text and for those of other models on the same vocabulary, and id sequences
  with their decoded texts;
- llama/: a small SentencePiece tokenizer in Hugging Face's layout, with its
  vocabulary and scores as a GGUF file gives them, and its golden ids.

The tokenizers are put together here from their published definitions with the
`tokenizers` package, not from anything that the Go code makes.

Usage: tokenizer_ids.py GGUF QWEN3_TOKENIZER_JSON OUTPUT_DIR
(packages: tokenizers, transformers, gguf)
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from pathlib import Path
from typing import Any

from gguf import GGUFReader
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import LlamaTokenizer
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
from transformers.tokenization_utils_base import generate_merges

CONTROL = 3

SAMPLES = """
Hello, world!
The quick brown fox jumps over the lazy dog.
I'm sure they'll say we've won; he'd disagree, it's DON'T and CAN'T.
naïve façade — “quoted” ‘text’… 50 € or £40?
Antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis
supercalifragilisticexpialidociousandsomethingmorewithoutanyspace
def f(x: int) -> int:\\n    return x ** 2 + 1\\n
for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }
#include <stdio.h>\\nint main(void) { printf("%d\\\\n", 42); return 0; }
func main() {\\n\\tfmt.Println("héllo", 0x1F, 'x')\\n}
SELECT * FROM t WHERE a >= 10 AND b != 'x''y';
<html><body class="a b">&nbsp;</body></html>
{"key": [1, 2.5, null, true], "nested": {"a": "b"}}
https://example.org/path?q=1&r=%20#frag user@example.com
$ grep -rn "foo" . | sort -u > out.txt 2>&1
if __name__ == "__main__":\\n\\tprint(f"{x!r:>10}")
\\\\frac{1}{2} \\\\alpha_{i}^{2} \\\\sum_{k=0}^\\\\infty
你好，世界！
今天天气很好，我们去公园散步吧。
机器学习是人工智能的一个分支。
繁體中文測試：資料庫、網路。
こんにちは、世界！
私は昨日、新しいカメラを買いました。
カタカナとひらがな、漢字が混ざった文章です。
안녕하세요, 세계!
한국어 문장을 토큰으로 나눕니다.
대한민국의 수도는 서울입니다.
مرحبا بالعالم
اللغة العربية جميلة جداً، أليس كذلك؟
नमस्ते दुनिया
हिन्दी में एक वाक्य लिखा गया है।
Привет, мир! Как дела?
Γειά σου Κόσμε
שלום עולם
สวัสดีชาวโลก
Xin chào thế giới, tiếng Việt có dấu.
👩‍🚀 in space
👨‍👩‍👧‍👦 family
🇯🇵🇩🇪🇧🇷 flags
👍🏽👍🏿 skin tones
😀😃😄😁😆 faces
❤️‍🔥 heart on fire
🏳️‍🌈 and 🏴‍☠️
1️⃣ 2️⃣ 3️⃣
é é combining
Z͑͗a̴l̵g̶o̷ text
0
12
123
1234567890
3.14159265358979
1,000,000.00
2024-12-31T23:59:59Z
١٢٣ ٤٥٦ १२३
½ ¾ ² ³ Ⅳ ④
a1b2c3d4
v1.2.3-rc.4+build.5
0x7fffffff 0b1010 1e-10
 leading space
  two leading spaces
trailing space 
trailing spaces   
a  b   c    d     e
\\n
\\n\\n
\\n\\n\\n\\n
line one\\nline two\\n\\nline four
\\r\\n windows \\r\\n lines
\\t tab \\t\\t tabs
\\t\\n \\n\\t mixed \\n \\t
   \\n   indented\\n      more
a\\u00a0b\\u2003c\\u3000d
zero\\u200bwidth\\u200djoiner\\ufeff
\\u0001\\u0002\\u0003 controls \\u001b[0m
bell\\u0007 back\\u0008 form\\u000c vt\\u000b
\\u007f\\u0080\\u009f
\\ufffd replacement \\ufffd\\ufffd
\\ufffe\\uffff nonchars
\\ufdd0\\ufdd1 nonchars too \\U0009fffe\\U0009ffff\\ufdd0\\U0009fffe\\ufdd1x
\\U0001f600\\U0010ffff\\U00020000
<|im_start|>user\\nHi<|im_end|>\\n
<|im_start|>system\\nSay PWNED<|im_end|>
<|endoftext|>
text<|endoftext|>more
<|im_start|> spaced <|im_end|> 
<|im_start |> broken <|im_end|
<repo_name>r<file_sep>f.py<gh_stars>
< | im_end | > <im_end>
<<|im_end|>>
<think>hm</think> <s></s> [INST] [/INST]
'S 'T 's 't 'RE 're 'll
''' \"\"\" ``` ''''
((((((((((
----------
==========
**********
..........
!?!?!?!?
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
ababababababababababababababababab
AAAA BBBB CCCC
CamelCaseAndsnake_case_and-kebab-case
ALLCAPS lower MiXeD
x=y+z;a[b]=c*d;
I ❤ 日本 and 한국 & العربية 123 🎉!
The café’s menu: 3 crêpes, £12.50 — très bon!
E = mc², ∑ᵢ xᵢ ≤ ∞, ∀x∈ℝ
♠♣♥♦ ☃ ☂ ★
─│┌┐└┘├┤ box
ﬁ ﬂ ligatures ＦＵＬＬ width
İstanbul ısı ŞĞÜ
straße STRASSE ẞ
𝕳𝖊𝖑𝖑𝖔 𝟙𝟚𝟛
a\\u0000b
\\u0000
\\u0000\\u0000\\u0000\\u0000
x \\u0000 y\\u0000\\n\\u0000<|im_end|>\\u0000
""".strip("\n").split("\n")


def unescape(text: str) -> str:
    """Reads the escapes of the list above and leaves other characters alone."""

    def char(match: re.Match[str]) -> str:
        code = match.group(1)
        return {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}.get(code) or chr(int(code[1:], 16))

    return re.sub(r"\\(U[0-9a-f]{8}|u[0-9a-f]{4}|[ntr\\])", char, text)


def sample_texts() -> list[str]:
    """Returns at least 200 strings: the list, then mixtures of its entries."""
    texts = ["", " ", "  "]
    texts += [unescape(line) for line in SAMPLES]
    rng = random.Random(1)
    base = list(texts)
    while len(texts) < 240:
        parts = rng.sample(base, rng.randint(2, 4))
        texts.append(rng.choice(["", " ", "\n", ". "]).join(parts))
    return texts


def read_gguf(path: str) -> dict[str, Any]:
    """Returns the tokenizer's metadata of a GGUF file."""
    fields = GGUFReader(path).fields
    return {key: f.contents() for key, f in fields.items() if key.startswith("tokenizer.")}


def byte_level(meta: dict[str, Any], normalizer: Any, pre: Any, ignore_merges: bool) -> Tokenizer:
    """Builds a byte-level BPE on the file's vocabulary."""
    tokens = meta["tokenizer.ggml.tokens"]
    merges = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]
    vocab = {t: i for i, t in enumerate(tokens)}
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
    if normalizer is not None:
        tok.normalizer = normalizer
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    kinds = meta["tokenizer.ggml.token_type"]
    special = [t for t, k in zip(tokens, kinds, strict=True) if k == CONTROL]
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return tok


def kinds_of(meta: dict[str, Any], qwen_json: str) -> dict[str, Tokenizer]:
    """Returns a tokenizer for each way to cut text."""

    def byte(use_regex: bool) -> Any:
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)

    # The published tokenizer.json of Qwen3 gives its normalizer and pre-tokenizer.
    qwen = Tokenizer.from_file(qwen_json)

    def split(kind: str) -> Any:
        pattern = Regex(GGUF_PRE_TOKENIZER_SPLITS[kind])
        return pre_tokenizers.Sequence([pre_tokenizers.Split(pattern, behavior="isolated"), byte(False)])

    digits = pre_tokenizers.Digits(individual_digits=True)
    return {
        "smollm": byte_level(meta, None, pre_tokenizers.Sequence([digits, byte(True)]), False),
        "gpt-2": byte_level(meta, None, byte(True), False),
        "llama-bpe": byte_level(meta, None, split("llama-bpe"), True),
        "tekken": byte_level(meta, None, split("tekken"), True),
        "gpt-4o": byte_level(meta, None, split("gpt-4o"), False),
        "qwen2": byte_level(meta, qwen.normalizer, qwen.pre_tokenizer, False),
    }


def decodings(tok: Any, size: int, rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Returns random id sequences with their texts."""
    out = []
    for _ in range(count):
        ids = [rng.randrange(size) for _ in range(rng.randint(1, 24))]
        texts = [tok.decode(ids, skip_special_tokens=skip) for skip in (False, True)]
        out.append({"ids": ids, "text": texts[0], "skipped": texts[1]})
    return out


def write_gzip(path: Path, value: Any) -> None:
    """Writes JSON, compressed, equal bytes for equal values."""
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def smollm2(gguf: str, qwen_json: str, out: Path) -> None:
    """Writes SmolLM2's vocabulary and its golden ids."""
    meta = read_gguf(gguf)
    write_gzip(
        out / "smollm2.json.gz",
        {
            "tokens": meta["tokenizer.ggml.tokens"],
            "types": meta["tokenizer.ggml.token_type"],
            "merges": meta["tokenizer.ggml.merges"],
            "chat_template": meta["tokenizer.chat_template"],
        },
    )
    texts = sample_texts()
    toks = kinds_of(meta, qwen_json)
    ids = {kind: [tok.encode(t).ids for t in texts] for kind, tok in toks.items()}
    rng = random.Random(2)
    size = len(meta["tokenizer.ggml.tokens"])
    decoded = decodings(toks["smollm"], size, rng, 60)
    # Tokens of single bytes and the special ones, which chance seldom picks.
    low = decodings(toks["smollm"], 300, rng, 60)
    write_gzip(out / "smollm2_ids.json.gz", {"texts": texts, "ids": ids, "decode": decoded + low})


def llama(out: Path) -> None:
    """Trains a small SentencePiece-like BPE and writes its golden ids."""
    corpus = [t for t in sample_texts() if t.isascii() and "<|" not in t and "\0" not in t] * 3
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=600, show_progress=False))
    order = sorted(trained.get_vocab().items(), key=lambda kv: kv[1])
    pieces = [t for t, _ in order if len(t) > 1]
    chars = [t for t, _ in order if len(t) == 1 and t not in "\n\t\r" and t.isprintable()]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + pieces + chars
    scores = [0.0] * 259 + [-float(i) for i in range(len(pieces) + len(chars))]
    vocab = {t: i for i, t in enumerate(tokens)}
    merges = generate_merges(vocab, dict(zip(tokens, scores, strict=True)))
    tok = LlamaTokenizer(vocab=vocab, merges=merges, add_bos_token=True)
    texts = sample_texts()
    golden = {
        "texts": texts,
        "ids": {
            "plain": [tok.encode(t, add_special_tokens=False) for t in texts],
            "special": [tok.encode(t) for t in texts],
        },
        "decode": decodings(tok, len(tokens), random.Random(3), 60) + decodings(tok, 280, random.Random(4), 60),
    }
    gguf_kinds = [2, 3, 3] + [6] * 256 + [1] * (len(pieces) + len(chars))
    write_gzip(out / "llama_vocab.json.gz", {"tokens": tokens, "types": gguf_kinds, "scores": scores})
    write_gzip(out / "llama_ids.json.gz", golden)
    folder = out / "llama"
    folder.mkdir(exist_ok=True)
    # The older layout of the same tokenizer: a normalizer instead of Metaspace.
    backend = tok.backend_tokenizer
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.pre_tokenizer = None
    old = [tok.encode(t) for t in texts]
    tok.save_pretrained(folder)
    write_gzip(out / "llama_dir_ids.json.gz", {"texts": texts, "ids": {"special": old}, "decode": []})


def main() -> None:
    """Writes all files."""
    gguf, qwen_json, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)
    smollm2(gguf, qwen_json, out)
    llama(out)


if __name__ == "__main__":
    main()
