"""What quantization costs: perplexity of SmolLM2-135M's forms, ours beside llama.cpp's.

    make quality

The text is public domain (scripts/peers/text.txt). The forms are made from the model's Q4_1 file, expanded to
bfloat16; it is what the others are to be compared with. Uses the environment of scripts/bench_peers.py.
"""

from __future__ import annotations

from pathlib import Path

from bench_peers import CACHE, ROOT, environment, run

TEXT = ROOT / "scripts" / "peers" / "text.txt"
PEER = ROOT / "scripts" / "peers" / "llama_cpp_perplexity.py"
# Each form: its file, and minisgl's option.
FORMS = {
    "bfloat16": ("bf16", "none"),
    "int8, quantized at load": ("bf16", "int8"),
    "Q8_0": ("q8_0", "auto"),
    "int4, quantized at load": ("bf16", "int4"),
    "Q4_0": ("q4_0", "auto"),
    "Q4_1, the original file": ("q4_1", "auto"),
}


def value(output: str) -> float:
    """The number in `perplexity 22.4 over 1363 tokens`."""
    return float(output.split()[1])


def forms(python: Path) -> dict[str, Path]:
    """The model's files, made where they are missing."""
    folder = CACHE / "peers" / "smollm2"
    folder.mkdir(parents=True, exist_ok=True)
    files = {"q4_1": Path(run([str(ROOT / "bin" / "minisgl"), "fetch", "smollm2-135m"]).strip())}
    for kind, source in {"bf16": "q4_1", "q8_0": "bf16", "q4_0": "bf16"}.items():
        files[kind] = folder / f"{kind}.gguf"
        if not files[kind].exists():
            part = files[kind].with_suffix(".part")
            run([str(python), str(PEER), "--requantize", kind, str(files[source]), str(part)])
            part.rename(files[kind])
    return files


def main() -> None:
    """Measures and prints a table in Markdown."""
    python = environment()
    files = forms(python)
    print("| SmolLM2-135M | minisgl | llama.cpp |\n|---|---|---|")
    for name, (kind, option) in FORMS.items():
        command = [str(ROOT / "bin" / "minisgl"), "perplexity", "--model", str(files[kind]), "--quantization", option]
        ours = value(run([*command, "--num-pages", "8192", str(TEXT)]))
        peer = "-"
        if option in ("none", "auto"):
            peer = f"{value(run([str(python), str(PEER), str(files[kind]), str(TEXT)])):.3f}"
        print(f"| {name} | {ours:.3f} | {peer} |", flush=True)


if __name__ == "__main__":
    main()
