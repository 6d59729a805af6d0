"""Makes go/llm/testdata/smollm2.json: greedy continuations of SmolLM2-135M-Instruct.

The reference is transformers in float32 on the dequantized GGUF file; each step
carries the gap between the two largest logits, so that a test can tell a wrong
token from a tie.

    python scripts/golden/smollm2.py SmolLM2-135M-Instruct.Q4_1.gguf go/llm/testdata/smollm2.json

Needs torch, transformers and gguf.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

STEPS = 64
LONG = (
    "The lighthouse stood at the end of a long spit of stones, and each evening the keeper climbed its {n} steps, "
    "trimmed the lamp, wrote the weather into a book and looked for ships. On day {n} the wind came from the north. "
)
PROMPTS = {
    "english": "The capital of France is",
    "code": 'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n',
    "chinese": "北京是中国的首都,它有",
    "emoji": "Translate to emoji: I love pizza 🍕 and astronauts 👩‍🚀 because",
    "chat": "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n",
    "long": "".join(LONG.format(n=n) for n in range(1, 13)) + "In short, the keeper",
}


def greedy(model: torch.nn.Module, ids: list[int]) -> tuple[list[int], list[float]]:
    """Continues ids greedily; returns the tokens and each step's top-2 gap."""
    tokens, gaps, cache = [], [], None
    step = torch.tensor([ids])
    for _ in range(STEPS):
        out = model(step, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        top = out.logits[0, -1].topk(2)
        tokens.append(int(top.indices[0]))
        gaps.append(round(float(top.values[0] - top.values[1]), 6))
        step = torch.tensor([[tokens[-1]]])
    return tokens, gaps


def main(gguf: Path, target: Path) -> None:
    """Writes the reference file."""
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32).eval()
    cases = []
    with torch.no_grad():
        for name, prompt in PROMPTS.items():
            ids = tokenizer(prompt)["input_ids"]
            tokens, gaps = greedy(model, ids)
            cases.append({"name": name, "prompt": prompt, "prompt_ids": ids, "tokens": tokens, "gaps": gaps})
            print(name, len(ids), repr(tokenizer.decode(tokens)), file=sys.stderr, flush=True)
    target.write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
