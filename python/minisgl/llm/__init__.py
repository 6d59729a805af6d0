"""The offline API: load a model, generate for a list of prompts."""

from minisgl.llm.forward import Batch, BatchReq, ForwardInput
from minisgl.llm.llm import LLM, GenerateOutput
from minisgl.llm.tokenizer import Tokenizer

__all__ = ["LLM", "Batch", "BatchReq", "ForwardInput", "GenerateOutput", "Tokenizer"]
