"""The model API: load a model, generate for prompts, stream, with asyncio or without."""

from minisgl.llm.async_llm import AsyncLLM, AsyncTokenStream
from minisgl.llm.forward import Batch, BatchReq, ForwardInput
from minisgl.llm.llm import LLM, GenerateOutput
from minisgl.llm.stream import StreamOutput, TokenLogprob, TokenStream, TopLogprob
from minisgl.llm.tokenizer import Tokenizer

__all__ = [
    "LLM",
    "AsyncLLM",
    "AsyncTokenStream",
    "Batch",
    "BatchReq",
    "ForwardInput",
    "GenerateOutput",
    "StreamOutput",
    "TokenLogprob",
    "TokenStream",
    "Tokenizer",
    "TopLogprob",
]
