"""The model's tokenizer, as far as users of an LLM need it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from minisgl.llm.prompts import check_messages, token_ids


class Tokenizer:
    """Text to token ids and back, and the chat template. Made by LLM.

    Attributes:
        eos_token_id: The id that ends a sequence, or None.
        bos_token_id: The id that begins a sequence, or None.
        vocab_size: Number of ids of the model.
    """

    def __init__(self, call: Callable[[str, str], str], info: dict[str, Any]) -> None:
        self._call = call
        self.eos_token_id: int | None = info["eos_token_id"]
        self.bos_token_id: int | None = info["bos_token_id"]
        self.vocab_size: int = info["vocab_size"]
        self.has_chat_template: bool = info["has_chat_template"]

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Returns the ids of a text, with what the model puts around one (BOS)."""
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, got {text!r}")
        ids: list[int] = self._ask("Encode", text=text, special=add_special_tokens)
        return ids

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        """Returns the text of token ids."""
        text: str = self._ask("Decode", token_ids=token_ids(ids, "ids"), special=skip_special_tokens)
        return text

    def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        *,
        tokenize: bool = True,
        add_generation_prompt: bool = False,
        tools: list[dict[str, Any]] | None = None,
        **kwargs: Any,
    ) -> str | list[int]:
        """Renders a conversation with the model's chat template.

        Args:
            messages: Dicts with role and content.
            tokenize: Whether to return token ids or the text.
            add_generation_prompt: Whether the text ends where the answer begins.
            tools: Descriptions of the functions that the model may call.
            **kwargs: What else the template reads, such as enable_thinking.

        Raises:
            ValueError: The model has no template, or the template refuses the messages.
        """
        template = template_options(add_generation_prompt, tools, kwargs)
        function = "Encode" if tokenize else "RenderChat"
        checked = check_messages(messages, "messages")
        rendered: str | list[int] = self._ask(function, messages=checked, template=template)
        return rendered

    def _ask(self, function: str, **argument: Any) -> Any:
        return json.loads(self._call(function, json.dumps(argument)))


def template_options(
    add_generation_prompt: bool, tools: list[dict[str, Any]] | None, kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Returns the options of a chat template as the native module takes them."""
    return {"add_generation_prompt": add_generation_prompt, "tools": tools, "kwargs": kwargs}
