"""Several requests at once with asyncio: the first answer that is complete wins.

The others are cancelled, which aborts them in the engine, too.
"""

from __future__ import annotations

import argparse
import asyncio

from minisgl.core import SamplingParams
from minisgl.llm import AsyncLLM

QUESTIONS = ("Name a colour.", "Name three rivers of Europe.", "Tell a long story about a dragon.")


async def answer(llm: AsyncLLM, question: str, max_tokens: int) -> str:
    """Returns a question, and the answer as it came."""
    text = ""
    messages = [{"role": "user", "content": question}]
    async for step in llm.stream_chat(messages, SamplingParams(max_tokens=max_tokens)):
        text += step.text
    return f"{question} {text.strip()}"


async def race(model: str, max_tokens: int) -> None:
    """Asks all questions, and prints the first answer."""
    async with await AsyncLLM.load(model) as llm:
        tasks = [asyncio.create_task(answer(llm, question, max_tokens)) for question in QUESTIONS]
        done, running = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        print("First:", next(iter(done)).result())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        print(f"{len(done)} complete, {len(running)} cancelled")


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--max-tokens", type=int, default=256)
    args = parser.parse_args()
    asyncio.run(race(args.model, args.max_tokens))


if __name__ == "__main__":
    main()
