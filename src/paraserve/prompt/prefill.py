"""A prompt that ends inside the last assistant message, for a reply that goes on with it.

Never adapts messages. One invariant: the prompt ends with the client's own last characters, blanks included.
"""

from __future__ import annotations

import re
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

    The last message is rendered as the template renders it, up to the prefill's end. A prefill that starts with
    reasoning is different where it is not closed (a message with reasoning and no content is one, too), or where the
    template would lose it or put an empty block before it: it follows the generation prompt, as if the model had
    written it.

    Raises:
        PromptError: the last message is no assistant's text, or the template does not show it.
    """
    last = messages[-1]
    path = f"messages[{len(messages) - 1}]"
    if last["role"] != "assistant" or last.get("tool_calls"):
        raise PromptError(f"{path}: continue_final_message needs an assistant message with text at the end", path)
    content = last.get("content")
    text = content if isinstance(content, str) else joined_text(content or ())
    thought = last.get("reasoning_content")
    if not text and isinstance(thought, str) and thought and markers:
        text = markers[0][0].strip() + thought
    rendered = render([*messages[:-1], {**last, "content": text + END}], False)
    native = rendered[: rendered.rfind(END)] if END in rendered else None
    opening = next((opening.strip() for opening, _ in markers if text.lstrip().startswith(opening.strip())), None)
    if opening is not None:
        unclosed = open_reasoning(text, markers) is not None
        earlier = render(messages[:-1], False).count(opening)
        if unclosed or native is None or not _one_block(native, text, opening, earlier):
            prompt = render(messages[:-1], True)
            start = reply_start(prompt, markers, content_openers)
            if start is not ReplyStart.CONTENT:
                state = ReplyStart.REASONING if unclosed else ReplyStart.CONTENT
                return _go_on(prompt, text.partition(opening), start), text, state
    if native is None:
        raise PromptError(f"{path}: this model's chat template cannot end a prompt inside a message", path)
    return native, text, ReplyStart.CONTENT


def _one_block(native: str, text: str, opening: str, earlier: int) -> bool:
    """The template itself made one block of reasoning of the prefill's: nothing lost, no empty block before it."""
    thought = re.split(r"<|\[", text.partition(opening)[2], maxsplit=1)[0].strip()
    return native.count(opening) - earlier <= 1 and thought in native


def _go_on(prompt: str, parts: tuple[str, str, str], start: ReplyStart) -> str:
    """The generation prompt and the reasoning so far, with one opening marker between them."""
    _, opening, thought = parts
    if start is ReplyStart.HEADER:
        return prompt + opening + thought
    if prompt.endswith("\n") and thought.startswith("\n"):
        thought = thought[1:]
    return prompt + thought
