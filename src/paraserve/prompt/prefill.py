"""A prompt that ends inside the last assistant message, for a reply that goes on with it.

Never adapts messages. One invariant: the prompt ends with the client's own last characters, blanks included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paraserve.formats.types import ReplyStart
from paraserve.prompt.errors import PromptError
from paraserve.prompt.parts import joined_text
from paraserve.prompt.state import Markers, open_reasoning, reply_start

Render = Callable[[Sequence[Mapping[str, Any]], bool], str]
"""Renders messages; the flag asks for the generation prompt."""

END = "\ue000end-of-prefill\ue001"
"""Stands after the prefilled text while it is rendered. Private-use characters: no template trims or splits on them."""


def continue_final(
    messages: Sequence[Mapping[str, Any]], render: Render, markers: Markers, content_openers: Sequence[str] = ()
) -> tuple[str, str, ReplyStart]:
    """The prompt, the prefilled text, and where the reply goes on.

    A prefill that opens reasoning and does not close it (or a message with reasoning and no content) goes on inside
    reasoning: it follows the generation prompt. Everything else is rendered as the template renders an assistant's
    message, up to the prefill's end.

    Raises:
        PromptError: the last message is no assistant's text, or the template does not show it.
    """
    last = messages[-1]
    path = f"messages[{len(messages) - 1}]"
    if last["role"] != "assistant" or last.get("tool_calls"):
        raise PromptError(f"{path}: continue_final_message needs an assistant message with text at the end", path)
    content = last.get("content")
    text = content if isinstance(content, str) else joined_text(content or ())
    opened = open_reasoning(text, markers)
    thought = last.get("reasoning_content")
    if opened is None and not text and isinstance(thought, str) and thought and markers:
        opened, text = markers[0], markers[0][0].strip() + thought
    if opened is not None and not text.partition(opened[0])[0].strip():
        prompt = render(messages[:-1], True)
        start = reply_start(prompt, markers, content_openers)
        if start is not ReplyStart.CONTENT:
            return _go_on(prompt, text.partition(opened[0]), start), text, ReplyStart.REASONING
    rendered = render([*messages[:-1], {**last, "content": text + END}], False)
    cut = rendered.rfind(END)
    if cut < 0:
        raise PromptError(f"{path}: this model's chat template cannot end a prompt inside a message", path)
    return rendered[:cut], text, ReplyStart.CONTENT


def _go_on(prompt: str, parts: tuple[str, str, str], start: ReplyStart) -> str:
    """The generation prompt and the reasoning so far, with one opening marker between them."""
    _, opening, thought = parts
    if start is ReplyStart.HEADER:
        return prompt + opening + thought
    if prompt.endswith("\n") and thought.startswith("\n"):
        thought = thought[1:]
    return prompt + thought
