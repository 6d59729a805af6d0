"""A small, fast LLM inference engine: a Python layer over an engine in Go.

The engine is loaded when the first :class:`minisgl.llm.LLM` is made; importing
the package costs next to nothing and starts no thread.
"""

__version__ = "0.1.0"
